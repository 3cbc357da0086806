"""Moments of a run at which a test kills its controller: found by what the command says, by the AWS calls that only it makes
then, and by what there is. A call is held at the emulator's edge, so that the moment lasts until it is seen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.local.faults import FaultKit
from tests.cloud import CloudUnderTest, Finished, until

MARKED_S = 2.0
"""Seconds for which a call on the way to a moment is held: the next one is scripted meanwhile."""
HELD_S = 15.0
"""Seconds for which the moment's own call is held; its caller is killed long before."""
OPEN = ("SCHEDULED", "PENDING", "RUNNING", "CANCELLING", "PAUSED")


@dataclass(frozen=True, slots=True)
class Call:
    """An AWS call of a run."""

    operation: str
    match: str = ""
    """Regular expression, searched in the request."""
    refused: bool = True
    """Held, it has no effect. False: it goes on when its time is over, for whoever made it lives on."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point on a run's way, reached when all that is named has come about, in this order."""

    name: str
    said: str = ""
    """Part of a line of the command."""
    calls: Sequence[Call] = ()
    """The last of them is held, the ones before are passed by."""
    seen: Callable[[CloudUnderTest], object] | None = None


class Controller:
    """`fleet run` in a process of its own, whose lines can be read while it runs."""

    def __init__(self, cloud: CloudUnderTest, folder: Path, *arguments: str, **environment: str) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fleet.cli.main", *arguments],
                env=cloud.environment(**environment),
                stdout=out,
                stderr=err,
                # So that all it has started is known by this session.
                start_new_session=True,
            )
        self._cloud = cloud
        self._kit = FaultKit(cloud.local.aws_endpoint)

    @property
    def said(self) -> str:
        """Its lines so far."""
        return self._err.read_text()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def reach(self, moment: Moment, *, seconds: float = 240) -> None:
        """Wait for a moment. AssertionError: it ended before, or that took too long."""
        try:
            if moment.said:
                self._until(moment.said, lambda: moment.said in self.said, seconds)
            for call in moment.calls[:-1]:
                self._hold(call, MARKED_S, seconds)
            if moment.calls:
                self._hold(moment.calls[-1], HELD_S, seconds, refused=moment.calls[-1].refused)
            if seen := moment.seen:
                self._until(moment.name, lambda: seen(self._cloud), seconds)
        finally:
            self._kit.clear()

    def kill(self) -> None:
        """SIGKILL. What it has started for itself (it plans in another interpreter) has ended soon after."""
        self._process.kill()
        assert self._process.wait() == -signal.SIGKILL, f"it was not there any more:\n{self.said[-2000:]}"
        until("no process that it had started", lambda: not session_of(self._process.pid), seconds=30)

    def finish(self, seconds: float = 240) -> Finished:
        """Wait for its end."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"still running after {seconds} s; it said:\n{self.said[-3000:]}") from None
        return Finished(code, self._out.read_text(), self.said)

    def end(self) -> None:
        """Let nothing of it outlive the test."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _hold(self, call: Call, hold: float, seconds: float, *, refused: bool = False) -> None:
        refusal: dict[str, Any] = {"code": "InternalError", "status": 500} if refused else {}
        self._kit.clear()
        self._kit.fault(call.operation, match=call.match, delay=hold, **refusal)
        self._until(f"{call.operation} {call.match}", lambda: sum(self._kit.hits()), seconds)

    def _until(self, what: str, look: Callable[[], object], seconds: float) -> None:
        until(what, lambda: look() or self.over, seconds=seconds, every=0.05)
        assert not self.over, f"it ended before: {what}\n{self.said[-3000:]}"


def session_of(leader: int) -> list[int]:
    """The processes of a session that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(session) == leader and state not in "ZX":
                found.append(int(stat.parent.name))
    return found


def locks(cloud: CloudUnderTest) -> list[str]:
    """Keys of all locks."""
    found = cloud.keys("inspect-fleet/evals/")
    return sorted(key for key in found if key.endswith("/lock.json"))


def account(cloud: CloudUnderTest) -> dict[str, list[str]]:
    """All that the account and the work pool hold, but for what is meant to stay: results, artifacts, logs."""
    ec2 = cloud.aws("ec2")
    parameters = cloud.aws("ssm").get_paginator("describe_parameters").paginate()
    return {
        "instances": sorted(one["InstanceId"] for one in cloud.living_instances()),
        "volumes": sorted(one["VolumeId"] for one in ec2.describe_volumes()["Volumes"]),
        "launch templates": sorted(
            one["LaunchTemplateId"] for one in ec2.describe_launch_templates()["LaunchTemplates"]
        ),
        "security groups": sorted(one["GroupId"] for one in ec2.describe_security_groups()["SecurityGroups"]),
        "queues": sorted(cloud.aws("sqs").list_queues().get("QueueUrls", [])),
        "parameters": sorted(one["Name"] for page in parameters for one in page["Parameters"]),
        "locks": locks(cloud),
        "processes": sorted(str(one.pid) for one in cloud.processes()),
        "workers that haven't ended": sorted(
            f"{run['name']} ({run['state']['name']})"
            for run in cloud.flow_runs(state={"type": {"any_": list(OPEN)}})
            if run["work_pool_name"] == "ec2"
        ),
    }
