"""A world for what one job's delivery leaves behind, on top of the workers' world. No test in here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import anyio

from bootstrap.reports import Reports
from bootstrap.runners import JobAnswer
from bootstrap.work import Work
from fleet.aws.failures import Throttled
from fleet.evals.documents import EvalManifest, Job, JobFailure, JobMessage
from tests.bootstrap.world import EVAL, EVENTS, LAYOUT, WORK, World

BUSY = Throttled(service="sqs", operation="SendMessageBatch", code="RequestThrottled", target=WORK, why="")


class Wide(World):
    """A world whose wall clock is its own, with named workers, whose jobs write a log as they go."""

    writes = b""
    idle_seconds = 0.0
    reports = Reports

    def worker(self, stop: anyio.Event, idle_seconds: float = 30) -> Work:
        made = super().worker(stop, self.idle_seconds or idle_seconds)
        number = len(self.workers) + 1
        made.deliveries = dataclasses.replace(
            made.deliveries,
            instance=f"i-{number}",
            worker=f"worker {number}",
            wall=lambda: self.time.now,
            reports=self.reports(
                self.queues, EVENTS, worker="run", instance="i-0", clockwork=made.deliveries.clockwork, say=print
            ),
        )
        return made

    async def run_job(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        if self.writes:
            (folder / "log").mkdir()
            (folder / "log" / "a.eval").write_bytes(self.writes)
        return await super().run_job(manifest, job, folder)

    def messages(self) -> list[JobMessage]:
        return [JobMessage.read(held.body) for held in self.queues.held]

    def partial(self) -> list[str]:
        return [key for key in self.objects.held if "/partial/" in key]


def taken(world: World, times: int, **fields: int) -> None:
    """As if workers had taken the first job's message so often, and died."""
    first = world.queues.held[0]
    first.receives = times
    first.body = JobMessage.read(first.body).model_copy(update=fields).write()


def record_of(world: World, attempt: int = 1) -> JobFailure:
    return JobFailure.read(world.objects.held[LAYOUT.failure(EVAL, world.jobs[0], attempt)])
