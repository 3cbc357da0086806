"""Carrying out the faults of a storm on a local cloud: at AWS's edge, or on processes, found as an operator would find them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleet.evals.documents import EvalManifest, JobMessage
from fleet.evals.layout import Layout
from fleet.evals.preparation import queue_name
from fleet.local import state
from fleet.local.faults import FaultKit
from tests.cloud import CloudUnderTest
from tests.soak.schedule import Kind, Strike, chosen

THROTTLES = (
    ("DescribeInstances", "RequestLimitExceeded", 503),
    ("ReceiveMessage", "ThrottlingException", 400),
    ("DeleteMessage", "ThrottlingException", 400),
    ("SendMessageBatch", "ThrottlingException", 400),
    ("PutObject", "SlowDown", 503),
    ("HeadObject", "SlowDown", 503),
    ("ListObjectsV2", "SlowDown", 503),
    ("ListObjectsV2", "InternalError", 500),
)
"""Operation, code and status. Each is called all the time, so that no fault waits in vain."""
LOST = ("DeleteMessage", "SendMessageBatch", "PutObject", "ReceiveMessage")
"""Operations whose answer is lost after their effect."""
SLOW = ("GetObject", "HeadObject", "PutObject", "ReceiveMessage", "DescribeInstances")
SLOW_SECONDS = 4.0
NOTICE_SECONDS = 6.0
"""A spot interruption's two minutes, on a machine on which a job takes seconds."""


@dataclass(slots=True)
class Target:
    """The run that a storm is over."""

    cloud: CloudUnderTest
    bucket: str
    layout: Layout
    faults: FaultKit
    jobs: int
    """Jobs of the eval."""
    controller: subprocess.Popen[str] | None = None
    struck: dict[Kind, int] = field(default_factory=dict)
    manifest: EvalManifest | None = None

    def share(self) -> float:
        """How much of the work is done, 0 to 1."""
        return len(self.finished()) / self.jobs

    def finished(self) -> list[str]:
        """Keys of all results."""
        if self.manifest is None:
            self._find_manifest()
        if self.manifest is None:
            return []
        return self.cloud.keys(self.layout.results(self.manifest.eval_id))

    def _find_manifest(self) -> None:
        keys = [key for key in self.cloud.keys(self.layout.prefix) if key.endswith("/manifest.json")]
        if keys:
            answer = self.cloud.aws("s3").get_object(Bucket=self.bucket, Key=keys[0])
            self.manifest = EvalManifest.read(answer["Body"].read())

    def strike(self, strike: Strike) -> bool:
        """Carry out one fault; False: there is nothing now that it could hit."""
        hit = _ACTS[strike.kind](self, strike.draw)
        if hit:
            self.struck[strike.kind] = self.struck.get(strike.kind, 0) + 1
        return hit

    def processes(self, *words: str) -> list[int]:
        """Processes of this cloud's instances whose command line has these words."""
        found = self.cloud.processes()
        return sorted(one.pid for one in found if all(word in _command_line(one.pid) for word in words))

    @property
    def folder(self) -> Path:
        """The cloud's folder."""
        return state.cloud_folder(self.cloud.local.name)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _kill(pids: list[int], draw: float) -> bool:
    if not pids:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(chosen(pids, draw), signal.SIGKILL)
        return True
    return False


def _instances(target: Target) -> list[str]:
    return sorted(it["InstanceId"] for it in target.cloud.living_instances() if it["State"]["Name"] == "running")


def _kill_instance(target: Target, draw: float) -> bool:
    found = _instances(target)
    if found:
        target.faults.crash(chosen(found, draw))
    return bool(found)


def _interrupt(target: Target, draw: float) -> bool:
    found = sorted(
        it["InstanceId"]
        for it in target.cloud.living_instances()
        if it["State"]["Name"] == "running" and it.get("InstanceLifecycle") == "spot"
    )
    if found:
        target.faults.interrupt(chosen(found, draw), NOTICE_SECONDS)
    return bool(found)


def _kill_worker(target: Target, draw: float) -> bool:
    return _kill(target.processes("bootstrap.engine"), draw)


def _kill_runner(target: Target, draw: float) -> bool:
    # Runners are forked, and keep the command line of the zygote they come from: that one may be hit as well.
    return _kill(target.processes("serve", "zygote"), draw)


def _kill_controller(target: Target, draw: float) -> bool:
    if target.controller is None or target.controller.poll() is not None:
        return False
    target.controller.kill()
    return True


def _kill_pool_worker(target: Target, draw: float) -> bool:
    known = state.read(target.folder)
    part = known.parts.get("workers") if known else None
    if part is None or part.process is None or not part.process.alive():
        return False
    part.process.signal(signal.SIGKILL)
    return True


def _throttle(target: Target, draw: float) -> bool:
    operation, code, status = chosen(THROTTLES, draw)
    target.faults.fault(operation, code=code, status=status, times=2)
    return True


def _lose(target: Target, draw: float) -> bool:
    target.faults.fault(chosen(LOST, draw), lost=True, status=500)
    return True


def _slow(target: Target, draw: float) -> bool:
    target.faults.fault(chosen(SLOW, draw), delay=SLOW_SECONDS)
    return True


def _duplicate(target: Target, draw: float) -> bool:
    urls = target.cloud.aws("sqs").list_queues().get("QueueUrls", [])
    work = [url for url in urls if url.endswith(queue_name("", "work").removeprefix("inspect-fleet-"))]
    if not work or target.manifest is None:
        return False
    job = chosen(target.manifest.jobs, draw).job
    body = JobMessage(eval_id=target.manifest.eval_id, job=job).write()
    target.cloud.aws("sqs").send_message(QueueUrl=work[-1], MessageBody=body)
    return True


def _truncate(target: Target, draw: float) -> bool:
    found = target.finished()
    if not found:
        return False
    s3, key = target.cloud.aws("s3"), chosen(found, draw)
    content = s3.get_object(Bucket=target.bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=target.bucket, Key=key, Body=content[: len(content) // 2])
    return True


_ACTS: dict[Kind, Callable[[Target, float], bool]] = {
    Kind.KILL_INSTANCE: _kill_instance,
    Kind.INTERRUPT: _interrupt,
    Kind.KILL_WORKER: _kill_worker,
    Kind.KILL_RUNNER: _kill_runner,
    Kind.KILL_CONTROLLER: _kill_controller,
    Kind.KILL_POOL_WORKER: _kill_pool_worker,
    Kind.THROTTLE: _throttle,
    Kind.LOST_ANSWER: _lose,
    Kind.SLOW: _slow,
    Kind.DUPLICATE: _duplicate,
    Kind.TRUNCATE: _truncate,
}
