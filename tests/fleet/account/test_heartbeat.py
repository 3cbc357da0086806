"""A run whose process was killed becomes Crashed, and one that ended stays as it ended: on a real Prefect server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import uuid4

import httpx
import pytest
from prefect.client.orchestration import PrefectClient

from fleet.account import heartbeat
from tests.cloud import CloudUnderTest, until

SILENCE_S = 10.0  # the least that Prefect takes
RUN = """
import sys, time
from prefect import flow, runtime

@flow(name="run-eval")
def lives(seconds: float) -> None:
    print(runtime.flow_run.id, flush=True)
    time.sleep(seconds)

lives(float(sys.argv[1]))
"""
Answer = TypeVar("Answer")


class FakeServer:
    """The automations of a Prefect server."""

    def __init__(self) -> None:
        self.automations: list[Any] = []

    async def read_automations_by_name(self, name: str) -> list[Any]:
        return [one for one in self.automations if one.name == name]

    async def create_automation(self, wanted: Any) -> None:
        self.automations.append(wanted)

    async def update_automation(self, automation: object, wanted: Any) -> None:
        self.automations = [wanted]


def ask(call: Callable[[PrefectClient], Awaitable[Answer]], server: FakeServer) -> Answer:
    return asyncio.run(call(cast("PrefectClient", server)))  # type: ignore[arg-type]


def stored(**changes: Any) -> SimpleNamespace:
    """The automation as a server has it, with some of it otherwise."""
    wanted = heartbeat.vanished_runs()
    fields = {name: getattr(wanted, name) for name in type(wanted).model_fields}
    return SimpleNamespace(**{**fields, "id": uuid4(), **changes})


def test_a_server_without_it_gets_it_once() -> None:
    server = FakeServer()
    assert ask(heartbeat.difference, server) == ""
    ask(heartbeat.ensure, server)
    assert ask(heartbeat.difference, server) is None
    assert len(server.automations) == 1


def test_an_older_one_is_brought_up_to_date_and_stays_switched_off() -> None:
    server = FakeServer()
    older = heartbeat.vanished_runs(silence=timedelta(seconds=90))
    server.automations.append(stored(trigger=older.trigger, enabled=False))
    assert ask(heartbeat.difference, server) == "trigger"
    ask(heartbeat.ensure, server)
    (updated,) = server.automations
    assert (updated.trigger.within, updated.enabled) == (heartbeat.SILENCE, False)


@contextmanager
def impatient(cloud: CloudUnderTest) -> Iterator[str]:
    """The id of the automation again, beside the deployed one, with seconds in place of minutes."""
    wanted = heartbeat.vanished_runs(name="impatient", silence=timedelta(seconds=SILENCE_S))
    body = wanted.model_dump(mode="json", exclude_unset=True)
    made = cloud.prefect("automations/", body)
    try:
        yield made["id"]
    finally:
        httpx.delete(f"{cloud.local.prefect_api}/automations/{made['id']}", timeout=30).raise_for_status()


@pytest.mark.cloud
@pytest.mark.fault("controller-killed")
def test_a_killed_run_is_crashed_and_a_completed_one_stays_completed(cloud: CloudUnderTest, tmp_path: Path) -> None:
    """Also where a heartbeat is counted after its end, so that Prefect takes the next one for missing."""
    (deployed,) = cloud.prefect("automations/filter", {"automations": {"name": {"any_": [heartbeat.NAME]}}})
    assert (deployed["enabled"], deployed["trigger"]["within"]) == (True, 540)
    script = tmp_path / "lives.py"
    script.write_text(RUN)

    def started(seconds: int) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, str(script), str(seconds)],
            env={**os.environ, **cloud.local.environment()},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout as said:
            return process, said.readline().strip()

    with impatient(cloud) as automation:
        process, killed = started(600)
        ends, completed = started(0)
        assert ends.wait(timeout=60) == 0
        cloud.prefect("events", [beat(completed, cloud.prefect(f"flow_runs/{completed}")["flow_id"])])
        process.kill()
        process.wait()
        assert cloud.wait_for(killed, "CRASHED", seconds=60)[0] == "CRASHED"
        refused = until("the automation acts on the completed run", lambda: refusals(cloud, automation), seconds=60)
    assert refused == ["Failed to set state: Run is already in terminal state COMPLETED."]
    assert cloud.state(completed)[0] == "COMPLETED"
    assert "no sign of life" in cloud.state(killed)[1]


def beat(run: str, flow: str) -> dict[str, Any]:
    """A heartbeat, as a flow's engine sends it."""
    flow_of_run = {
        "prefect.resource.id": f"prefect.flow.{flow}",
        "prefect.resource.role": "flow",
        "prefect.resource.name": "run-eval",
    }
    return {
        "id": str(uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": heartbeat.HEARTBEAT,
        "resource": {"prefect.resource.id": f"prefect.flow-run.{run}"},
        "related": [flow_of_run],
    }


def refusals(cloud: CloudUnderTest, automation: str) -> list[str]:
    """What the server said to this automation where it refused its action: the deployed one acts on other tests' runs."""
    wanted = {
        "event": {"name": ["prefect.automation.action.failed"]},
        "resource": {"id": [f"prefect.automation.{automation}"]},
    }
    found = cloud.prefect("events/filter", {"filter": wanted})
    return [one["payload"]["reason"] for one in found["events"]]
