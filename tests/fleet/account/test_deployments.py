"""Making deployments: with a bound, and with each schedule's switch where a person had it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect.client.orchestration import PrefectClient
from prefect.exceptions import ObjectNotFound

from fleet.account import deployments
from fleet.account.deployments import DeploymentRefused, deploy, schedule_switches, switch

REAP = {"name": "reap", "entrypoint": "flows.reap.reap"}


class FakeServer:
    """One deployment with these schedules; None: it isn't there."""

    def __init__(self, schedules: dict[str, bool] | None) -> None:
        self.schedules = schedules
        self.calls: list[tuple[str, bool]] = []

    async def read_deployment_by_name(self, name: str) -> Any:
        assert name == "reap/reap"
        if self.schedules is None:
            raise ObjectNotFound(Exception(name))
        found = [SimpleNamespace(id=slug, slug=slug, active=active) for slug, active in self.schedules.items()]
        return SimpleNamespace(id="d", schedules=found)

    async def update_deployment_schedule(self, deployment: str, schedule: str, *, active: bool) -> None:
        self.calls.append((schedule, active))


def test_a_deploy_that_sets_schedules_back_is_undone() -> None:
    before = FakeServer({"hourly": False, "nightly": True})
    switches = asyncio.run(schedule_switches(cast("PrefectClient", before), REAP))
    after = FakeServer({"hourly": True, "nightly": False, "new": True})
    asyncio.run(switch(cast("PrefectClient", after), REAP, switches))
    assert after.calls == [("hourly", False), ("nightly", True)]


def test_a_new_deployment_has_its_schedules_as_the_file_says() -> None:
    switches = asyncio.run(schedule_switches(cast("PrefectClient", FakeServer(None)), REAP))
    assert switches == {}
    after = FakeServer({"hourly": True})
    asyncio.run(switch(cast("PrefectClient", after), REAP, switches))
    assert after.calls == []


@pytest.mark.timeout(30)
def test_a_deploy_that_hangs_is_ended_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(deployments, "LONGEST_S", 0.2)
    with pytest.raises(DeploymentRefused, match=r"run-eval was not made: `prefect deploy` didn't end within 0\.2 s"):
        deploy(tmp_path / "prefect.yaml", ["run-eval"])
