"""What this worker tells its controller: events on the events queue. Hints only, so a lost one stops nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import JsonValue

from bootstrap.clockwork import Clockwork
from fleet.aws.failures import AwsRefused
from fleet.evals.documents import EventKind, JobMessage, JobResult, WorkerEvent


class SendsMessages(Protocol):
    """What is needed of `fleet.aws.queues.Queues`."""

    def send(self, url: str, bodies: Sequence[str], delay: int = 0) -> None:
        """Put messages on a queue."""
        ...


class Reports:
    """Events of one worker, each sent when it happens."""

    def __init__(
        self,
        queues: SendsMessages,
        url: str,
        *,
        worker: str,
        instance: str,
        clockwork: Clockwork,
        say: Callable[[str], None],
    ) -> None:
        self._queues = queues
        self._url = url
        self._worker = worker
        self._instance = instance
        self._clockwork = clockwork
        self._say = say

    async def send(self, kind: EventKind, job: JobMessage | None = None, /, **detail: JsonValue) -> None:
        """Send one event. Where SQS refuses it, that is said in the log and the work goes on."""
        event = WorkerEvent(
            kind=kind,
            worker=self._worker,
            instance=self._instance,
            at=time.time(),
            eval_id=job.eval_id if job else None,
            job=job.job if job else None,
            detail=detail,
        )
        try:
            await self._clockwork.in_thread(self._queues.send, self._url, [event.write()])
        except AwsRefused as refusal:
            self._say(f"event {kind} not sent: {refusal}")


def tally(result: JobResult) -> dict[str, JsonValue]:
    """The counts that go with job_done, and the cost where Inspect had prices."""
    usages = result.model_usage.values()
    counts: dict[str, JsonValue] = {
        "samples": len(result.samples),
        "errors": sum(sample.error is not None for sample in result.samples),
        "tokens": sum(int(usage.get("total_tokens") or 0) for usage in usages),
    }
    costs = [float(usage["total_cost"]) for usage in usages if usage.get("total_cost") is not None]
    return counts | ({"cost": round(sum(costs), 6)} if costs else {})
