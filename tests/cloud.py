"""A local cloud for tests, asked as a stranger would: Prefect by its REST API, AWS by boto3, the command by its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import boto3
import httpx

from fleet.local import cloud, preset, state
from fleet.local.cloud import LocalCloud
from fleet.local.ending import host_folder
from fleet.local.faults import BYSTANDER
from fleet.local.processes import Finder, read_records
from fleet.processes import Process

Answer = TypeVar("Answer")
ENDING_S = 10.0
"""Seconds after its end in which an instance's last processes may go."""
LONG_S = 90
"""A sample that lasts so long isn't done before a cancelled run has ended its instances, however slow the machine."""
EXAMPLES = Path(__file__).parents[1] / "examples"
ELEMENTS = ("fleet_examples/elements", "--model", "scripted/chemist", "--source", str(EXAMPLES))


@dataclass(frozen=True)
class Finished:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """What `--json` printed."""
        document: dict[str, Any] = json.loads(self.out)
        return document


@dataclass(frozen=True)
class CloudUnderTest:
    """One local cloud and the ways to look into it."""

    local: LocalCloud

    def environment(self, **more: str) -> dict[str, str]:
        """What the command needs to find this cloud, and nothing that leads elsewhere."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_"))}
        return {**kept, "FLEET_LOCAL_CLOUD": self.local.name, **more}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """The command, running."""
        return subprocess.Popen(
            [sys.executable, "-m", "fleet.cli.main", *arguments],
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def fleet(self, *arguments: str, seconds: float = 240, **environment: str) -> Finished:
        """The command, to its end."""
        return finish(self.start(*arguments, **environment), seconds=seconds)

    def aws(self, service: str) -> Any:
        """A boto3 client of the emulator, whom no scripted fault strikes."""
        return boto3.client(
            service,  # type: ignore[call-overload]
            region_name="us-east-1",
            endpoint_url=self.local.aws_endpoint,
            aws_access_key_id=BYSTANDER,
            aws_secret_access_key="tests",
        )

    def prefect(self, path: str, body: dict[str, Any] | list[Any] | None = None) -> Any:
        """The server's answer: a POST with a body, else a GET."""
        with httpx.Client(base_url=f"{self.local.prefect_api}/", timeout=30) as client:
            answer = client.get(path) if body is None else client.post(path, json=body)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    def flow_runs(self, **filters: Any) -> list[dict[str, Any]]:
        """Flow runs by a Prefect filter, oldest first."""
        body = {"flow_runs": filters, "sort": "START_TIME_ASC"} if filters else {"sort": "START_TIME_ASC"}
        found: list[dict[str, Any]] = self.prefect("flow_runs/filter", body)
        return found

    def newest_run(self) -> str | None:
        """The run of evals that began last, of those at work. One whose controller was killed is shown so for minutes, by
        another test perhaps."""
        body = {
            "flows": {"name": {"any_": ["run-eval"]}},
            "flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}},
            "sort": "START_TIME_DESC",
            "limit": 1,
        }
        return next((str(run["id"]) for run in self.prefect("flow_runs/filter", body)), None)

    def workers_of(self, run: str) -> list[dict[str, Any]]:
        """The fleet workers' flow runs of a run."""
        return self.flow_runs(tags={"all_": [f"run:{run}"]})

    def state(self, flow_run: str) -> tuple[str, str]:
        """Type and message of a flow run's state."""
        state = self.prefect(f"flow_runs/{flow_run}")["state"]
        return state["type"], state["message"] or ""

    def wait_for(self, flow_run: str, state: str, *, seconds: float = 200) -> tuple[str, str]:
        """Type and message of the first state of this type, or of a final one."""
        ends = {state, "COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
        return until(
            f"{flow_run} in {state}",
            lambda: found if (found := self.state(flow_run))[0] in ends else None,
            seconds=seconds,
            every=0.5,
        )

    def states(self, flow_run: str) -> list[dict[str, Any]]:
        """All states of a flow run."""
        found: list[dict[str, Any]] = self.prefect(f"flow_run_states/?flow_run_id={flow_run}")
        return found

    def task_runs(self, flow_run: str) -> list[dict[str, Any]]:
        """Task runs of a flow run."""
        found: list[dict[str, Any]] = self.prefect(
            "task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [flow_run]}}, "sort": "EXPECTED_START_TIME_ASC"}
        )
        return found

    def steps(self, flow_run: str, *, among: Collection[str] = ()) -> dict[str, str]:
        """The state in which each task of an ended flow run ended, by the task run's name. `among`: those that are waited for.

        The server records task runs from events, some moments after the flow run itself.
        """

        def ended() -> dict[str, str] | None:
            found = {task["name"]: task["state"]["type"] for task in self.task_runs(flow_run)}
            over = set(found.values()) <= {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
            return found if found and over and found.keys() >= set(among) else None

        return until("every step of the flow run has its last state", ended, seconds=60)

    def logs(self, flow_run: str) -> str:
        """The log of a flow run as one text."""
        found = self.prefect("logs/filter", {"logs": {"flow_run_id": {"any_": [flow_run]}}, "sort": "TIMESTAMP_ASC"})
        return "\n".join(line["message"] for line in found)

    def living_instances(self) -> list[dict[str, Any]]:
        """Instances that are not terminated."""
        pages = self.aws("ec2").get_paginator("describe_instances").paginate()
        return [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            if instance["State"]["Name"] not in ("terminated", "shutting-down")
        ]

    def left_behind(self) -> list[str]:
        """Instances, volumes, queues, per-instance parameters, locks, instances' processes: between runs, there should be none."""
        queues = self.aws("sqs").list_queues().get("QueueUrls", [])
        parameters = self.aws("ssm").get_parameters_by_path(Path="/inspect-fleet/instances", Recursive=True)[
            "Parameters"
        ]
        return [
            *[instance["InstanceId"] for instance in self.living_instances()],
            *[volume["VolumeId"] for volume in self.aws("ec2").describe_volumes()["Volumes"]],
            *queues,
            *[parameter["Name"] for parameter in parameters],
            *[key for key in self.keys() if key.endswith("/lock.json")],
            *[f"process {process.pid}" for process in self._lingering()],
        ]

    def keys(self, prefix: str = "") -> list[str]:
        """Every object in the bucket whose key begins so."""
        pages = self.aws("s3").get_paginator("list_objects_v2").paginate(Bucket=preset.BUCKET, Prefix=prefix)
        return [it["Key"] for page in pages for it in page.get("Contents", [])]

    def stored(self, kind: str) -> set[str]:
        """Keys of all evals' results (`jobs`), of those that were set aside (`unusable`), of `failures`, and so on."""
        return {key for key in self.keys() if f"/{kind}/" in key}

    def processes(self) -> set[Process]:
        """Every process of its instances."""
        folder = host_folder(state.cloud_folder(self.local.name)).resolve()
        return Finder(f"{folder}:i-", read_records(folder)).find()

    def _lingering(self) -> set[Process]:
        """Processes of instances; where no instance lives any more, those that don't end."""
        end = time.monotonic() + ENDING_S
        while (found := self.processes()) and not self.living_instances() and time.monotonic() < end:
            time.sleep(0.2)
        return found


def finish(process: subprocess.Popen[str], *, seconds: float = 240) -> Finished:
    """Wait for a command; it is killed when its time is over."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running after {seconds} s; it said:\n{err[-3000:]}") from None
    return Finished(process.returncode, out, err)


def until(what: str, look: Callable[[], Answer | None], *, seconds: float = 60, every: float = 0.2) -> Answer:
    """The first answer that isn't nothing: processes of their own can only be looked at until it is so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = look()
        if answer:
            return answer
        time.sleep(every)
    raise AssertionError(f"not within {seconds} s: {what}")


@contextmanager
def a_cloud(name: str) -> Iterator[CloudUnderTest]:
    """A local cloud with all its parts, which ends with this process at the latest and leaves nothing."""
    local = cloud.up(name, controllers=True, owner_pid=os.getpid(), say=lambda line: None)
    try:
        yield CloudUnderTest(local)
    finally:
        assert cloud.down(name) == []
