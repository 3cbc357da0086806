"""The checks started on their own, as a person does it in the UI: by their deployments."""

from __future__ import annotations

import json

import pytest

from fleet.aws.permissions import PERMISSIONS
from fleet.local import preset
from tests.cloud import CloudUnderTest, until

pytestmark = pytest.mark.cloud


def started(cloud: CloudUnderTest, deployment: str) -> str:
    found = cloud.prefect(f"deployments/name/{deployment}")
    return str(cloud.prefect(f"deployments/{found['id']}/create_flow_run", {})["id"])


def test_image_and_permissions_are_checked_by_flows_of_their_own(cloud: CloudUnderTest) -> None:
    image = started(cloud, "check-ami/check-ami")
    permissions = started(cloud, "preflight/preflight")
    assert cloud.wait_for(image, "COMPLETED")[0] == "COMPLETED"
    assert cloud.wait_for(permissions, "COMPLETED")[0] == "COMPLETED"
    said = f"worker image {preset.IMAGE} (from {preset.IMAGE_PARAMETER})"
    until("what it found is in its log, which comes after its state", lambda: said in cloud.logs(image))
    (table,) = cloud.prefect("artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [permissions]}}})
    assert {row["outcome"] for row in json.loads(table["data"])} == {"allowed"}
    assert len(json.loads(table["data"])) == len(PERMISSIONS["controller"]) + len(PERMISSIONS["launcher"])
