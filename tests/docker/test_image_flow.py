"""`fleet image build` on a local cloud with a real Docker engine: from Canonical's base to the parameter that fleets read."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fleet.local.preset import IMAGE, IMAGE_PARAMETER
from tests.cloud import a_cloud
from tests.docker.conftest import Engine

pytestmark = [pytest.mark.docker, pytest.mark.cloud, pytest.mark.timeout(600)]

BUILD = ("image", "build", "--json", "--every", "0.3")


def test_an_image_is_baked_tried_by_an_instance_and_named_and_the_next_build_has_nothing_to_do(docker: Engine) -> None:
    """The canary's checks are real ones: the engine, its address pool, the dependencies, the code from S3."""
    with a_cloud(f"image-{os.getpid()}") as cloud:
        there: Any = cloud.local.environment()
        built = cloud.fleet(*BUILD, **there)
        assert built.code == 0, built.err
        report = built.report
        assert (report["outcome"], report["previous"], report["parameter"]) == ("built", IMAGE, IMAGE_PARAMETER)
        assert any(check.startswith("docker: engine ") for check in report["checks"])
        assert "step 2 of 7: docker" in built.err
        assert cloud.aws("ssm").get_parameter(Name=IMAGE_PARAMETER)["Parameter"]["Value"] == report["image"]
        assert cloud.living_instances() == []
        steps = {"find-base", "build", "canary", "publish", "prune"}
        assert cloud.steps(cloud.flow_runs()[0]["id"], among=steps).keys() == steps
        again = cloud.fleet(*BUILD, **there)
        assert (again.code, again.report["outcome"], again.report["image"]) == (0, "unchanged", report["image"])
