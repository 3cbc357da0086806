"""`fleet setup` as a person runs it, against a whole local cloud: it changes nothing that is there, and mends what is gone."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.cloud import CloudUnderTest

pytestmark = pytest.mark.cloud


def test_what_is_removed_is_named_and_made_again_and_the_second_time_nothing_changes(cloud: CloudUnderTest) -> None:
    environment: Any = cloud.local.environment()
    found = cloud.prefect("deployments/name/run-eval/run-eval")
    httpx.delete(f"{cloud.local.prefect_api}/deployments/{found['id']}", timeout=30).raise_for_status()
    check = cloud.fleet("setup", "--check", "--json", **environment)
    bad = [(one["what"], one["status"]) for one in json.loads(check.out)["findings"] if one["status"] != "ok"]
    assert (check.code, bad) == (3, [("deployment run-eval/run-eval", "missing")])
    mended = cloud.fleet("setup", "--yes", **environment)
    assert (mended.code, mended.out.splitlines()[0]) == (0, "+ deployment run-eval/run-eval")
    again = cloud.fleet("setup", "--json", **environment)
    assert (again.code, again.report["changed"], again.report["changes"]) == (0, False, [])
