"""A small world for a worker: a queue with leases, a bucket, runners, and time that passes only when all wait for it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import anyio
import anyio.lowlevel

from bootstrap.clockwork import Clockwork
from bootstrap.delivery import Deliveries
from bootstrap.manifests import Manifests
from bootstrap.reports import Reports
from bootstrap.runners import JobAnswer
from bootstrap.secrets import Secrets
from bootstrap.slots import Slots
from bootstrap.work import POLL_SECONDS, Reason, Watch, Work
from fleet.aws.queues import Depth, LeaseLost, Message, QueueGone
from fleet.errors import FleetError
from fleet.evals.documents import (
    EnvironmentSpec,
    EvalManifest,
    Job,
    JobMessage,
    JobResult,
    SampleRecord,
    SampleRef,
    WorkerEvent,
)
from fleet.evals.layout import Layout
from fleet.evals.request import ModelSpec, TaskSpec

T = TypeVar("T")

EVAL = "arithmetic-0123456789abcdef"
WORK = "queue://work"
EVENTS = "queue://events"
LAYOUT = Layout("fleet")
SETTLE = 40
"""Turns of the event loop in which every task gets as far as it can."""


class VirtualTime:
    """A clock that is moved to the next sleeper once every task waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._count = itertools.count()

    async def sleep(self, seconds: float) -> None:
        woken = anyio.Event()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._count), woken))
        await woken.wait()

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """Runs the call here; like a thread, it is finished even when it is cancelled meanwhile."""
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope(shield=True):
            answer = call(*args)
            if answer == []:  # a long poll that found nothing
                await self.sleep(POLL_SECONDS)
        return answer

    async def pass_by(self) -> None:
        while True:
            for _ in range(SETTLE):
                await anyio.lowlevel.checkpoint()
            if self._sleepers:
                self.now, _, woken = heapq.heappop(self._sleepers)
                woken.set()

    def clockwork(self) -> Clockwork:
        return Clockwork(now=lambda: self.now, sleep=self.sleep, in_thread=self.in_thread)


@dataclass
class Held:
    body: str
    visible_at: float
    receipt: str = ""
    receives: int = 0


class FakeQueues:
    """SQS as a worker meets it: leases that lapse, receipts that go stale, a queue that may be deleted."""

    def __init__(self, time: VirtualTime, journal: list[str]) -> None:
        self.time = time
        self.journal = journal
        self.held: list[Held] = []
        self.events: list[WorkerEvent] = []
        self.gone = False
        self.refuse: dict[str, FleetError] = {}
        """Error by operation, while it lasts."""
        self._receipts = itertools.count()

    def send(self, url: str, bodies: Sequence[str], delay: int = 0) -> None:
        self._ask("send")
        for body in bodies:
            if url == EVENTS:
                event = WorkerEvent.read(body)
                self.events.append(event)
                self.journal.append(f"event {event.kind} {event.job or ''}".strip())
            else:
                self.held.append(Held(body, self.time.now + delay))

    def receive(self, url: str, *, most: int = 10, wait: int = 20) -> list[Message]:
        self._ask("receive")
        found = [held for held in self.held if held.visible_at <= self.time.now][:most]
        for held in found:
            held.receives += 1
            held.receipt = f"receipt-{next(self._receipts)}"
            held.visible_at = self.time.now + 60
        return [Message(body=held.body, receipt=held.receipt, receives=held.receives) for held in found]

    def depth(self, url: str) -> Depth:
        self._ask("depth")
        hidden = [held for held in self.held if held.visible_at > self.time.now]
        leased = sum(held.receives > 0 for held in hidden)  # the others were sent with a delay, and nobody has had them
        return Depth(waiting=len(self.held) - len(hidden), leased=leased, delayed=len(hidden) - leased)

    def extend(self, url: str, receipt: str, seconds: int) -> None:
        self._ask("extend")
        self._of(receipt).visible_at = self.time.now + seconds

    def release(self, url: str, receipt: str, delay: int = 0) -> bool:
        try:
            self._of(receipt).visible_at = self.time.now + delay
        except LeaseLost:
            return False
        self.journal.append("release")
        return True

    def done(self, url: str, receipt: str) -> bool:
        self._ask("done")
        try:
            held = self._of(receipt)
        except LeaseLost:
            return False
        self.held.remove(held)
        self.journal.append("done")
        return True

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events if event.kind != "beat"]

    def _ask(self, operation: str) -> None:
        if self.gone:
            raise QueueGone(
                service="sqs", operation=operation, code="QueueDoesNotExist", target=WORK, why="it was deleted"
            )
        if operation in self.refuse:
            raise self.refuse[operation]

    def _of(self, receipt: str) -> Held:
        for held in self.held:
            if held.receipt == receipt and held.visible_at > self.time.now:
                return held
        raise LeaseLost(queue=WORK, code="ReceiptHandleIsInvalid")


class FakeObjects:
    """A bucket."""

    def __init__(self, journal: list[str]) -> None:
        self.held: dict[str, bytes] = {}
        self.journal = journal
        self.refuse: dict[str, FleetError] = {}

    def get(self, key: str) -> bytes:
        return self.held[key]

    def exists(self, key: str) -> bool:
        self._ask("exists")
        return key in self.held

    def put(self, key: str, data: bytes | BinaryIO) -> None:
        self._ask("put")
        self.held[key] = data if isinstance(data, bytes) else data.read()
        self.journal.append(f"put {key}")

    def put_new(self, key: str, data: bytes | BinaryIO) -> bool:
        self._ask("put_new")
        if key in self.held:
            return False
        self.put(key, data)
        return True

    def _ask(self, operation: str) -> None:
        if operation in self.refuse:
            raise self.refuse[operation]


@dataclass
class Script:
    """What running one job means."""

    seconds: float = 1.0
    rate_limited: int = 0
    crashes: list[FleetError] = field(default_factory=list)
    """Raised one after the other, before it succeeds."""


class World:
    """Jobs by number, and what happens to them."""

    def __init__(self, folder: Path, jobs: int, *, slots: int = 4, lease_seconds: int = 60) -> None:
        self.time = VirtualTime()
        self.journal: list[str] = []
        self.queues = FakeQueues(self.time, self.journal)
        self.objects = FakeObjects(self.journal)
        self.secrets = Secrets({"OPENAI_API_KEY": "sk-very-secret"})
        self.said: list[str] = []
        self.ran: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.scripts: dict[str, Script] = {}
        self.slots = Slots(most=slots, now=slots)
        self.folder = folder
        self.lease_seconds = lease_seconds
        self.beside: list[Watch] = []
        self.ill = ""
        """Why the host is unfit."""
        self.oom_kills = 0
        self.acts: list[tuple[float, Callable[[], None]]] = []
        """What happens when."""
        self.manifest = manifest_of(jobs)
        self.jobs = [job.job for job in self.manifest.jobs]
        self.objects.held[LAYOUT.manifest(EVAL)] = self.manifest.write().encode()
        self.queues.send(WORK, [JobMessage(eval_id=EVAL, job=job).write() for job in self.jobs])

    def worker(self, stop: anyio.Event, idle_seconds: float = 30) -> Work:
        clockwork = self.time.clockwork()
        deliveries = Deliveries(
            instance="i-0123456789abcdef0",
            queue=WORK,
            lease_seconds=self.lease_seconds,
            folder=self.folder,
            layout=LAYOUT,
            objects=self.objects,
            queues=self.queues,
            manifests=Manifests(self.objects, LAYOUT, clockwork),
            reports=Reports(
                self.queues, EVENTS, worker="run", instance="i-0", clockwork=clockwork, say=self.said.append
            ),
            secrets=self.secrets,
            clockwork=clockwork,
            run_job=self.run_job,
            say=self.said.append,
            unfit=self.unfit,
            oom_kills=lambda: self.oom_kills,
        )
        return Work(
            deliveries=deliveries,
            receiver=self.queues,
            slots=self.slots,
            idle_seconds=idle_seconds,
            stop=stop,
            say=self.said.append,
            beside=self.beside,
        )

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Have something happen while the workers work."""
        self.acts.append((seconds, act))

    def work(self, *, stop_at: float | None = None, gone_at: float | None = None, workers: int = 1) -> list[Reason]:
        """Let workers work until they end; why each did."""
        self.ends: list[Reason] = []
        self.workers: list[Work] = []

        async def one(stop: anyio.Event) -> None:
            worker = self.worker(stop)
            self.workers.append(worker)
            self.ends.append(await worker.run())

        async def main() -> None:
            stop = anyio.Event()

            async def at(seconds: float, act: Callable[[], None]) -> None:
                await self.time.sleep(seconds)
                act()

            async with anyio.create_task_group() as around:
                around.start_soon(self.time.pass_by)
                for seconds, act in self.acts:
                    around.start_soon(at, seconds, act)
                if stop_at is not None:
                    around.start_soon(at, stop_at, stop.set)
                if gone_at is not None:
                    around.start_soon(at, gone_at, lambda: setattr(self.queues, "gone", True))
                async with anyio.create_task_group() as crew:
                    for _ in range(workers):
                        crew.start_soon(one, stop)
                around.cancel_scope.cancel()

        anyio.run(main)
        return self.ends

    async def run_job(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        script = self.scripts.setdefault(job.job, Script())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.journal.append(f"run {job.job}")
        try:
            await self.time.sleep(script.seconds)
        finally:
            self.at_once -= 1
        if script.crashes:
            raise script.crashes.pop(0)
        self.ran.append(job.job)
        log = folder / f"{job.job}.eval"
        log.write_bytes(f"log {len(self.ran)}".encode())
        return JobAnswer(log=log, result=result_of(job), seconds=script.seconds, rate_limited=script.rate_limited)

    async def unfit(self) -> str:
        return self.ill

    def waiting(self) -> list[str]:
        """The jobs that others may take now."""
        return sorted(JobMessage.read(one.body).job for one in self.queues.held if one.visible_at <= self.time.now)

    def results(self) -> list[str]:
        return sorted(LAYOUT.job_of(key) for key in self.objects.held if key.startswith(LAYOUT.results(EVAL)))


def result_of(job: Job) -> JobResult:
    return JobResult(
        eval_id=EVAL,
        job=job.job,
        samples=[SampleRecord(id=1, epoch=1), SampleRecord(id=2, epoch=1, error={"message": "no"})],
        started_at="2026-01-01T00:00:00+00:00",
        completed_at="2026-01-01T00:00:01+00:00",
        model_usage={"m": {"total_tokens": 7}},
    )


def manifest_of(jobs: int) -> EvalManifest:
    return EvalManifest(
        eval_id=EVAL,
        task=TaskSpec(name="arithmetic"),
        model=ModelSpec(name="mockllm/model"),
        solver=None,
        eval_config={},
        generate_config={},
        tags=[],
        metadata={},
        environment=EnvironmentSpec(python="3.11", lock=""),
        needs_docker=False,
        sample_ids=list(range(jobs)),
        epochs=1,
        jobs=[Job(job=f"{n:06d}-{n:08x}", samples=[SampleRef(id=n, epoch=1, digest=f"{n:016x}")]) for n in range(jobs)],
        identity={},
        log_name="2026-01-01T00-00-00_arithmetic_0123456789abcdef",
    )
