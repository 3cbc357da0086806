"""EC2, Prefect and a pool worker in memory, for what the observer sees and does. No test in here."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID, uuid4

import anyio
import httpx

from fleet.aws.failures import AwsRefused
from fleet.aws.instances import Instance, Instances, TerminationRefused
from fleet.aws.session import Aws
from fleet.pool.observer import Observer
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG
from fleet.pool.run_states import RunView
from fleet.pool.settings import PoolSettings
from fleet.pool.verdict import RunPhase
from fleet.pool.watched import Terms, Watched

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
POOL = "pool-id"


class Clock:
    """Seconds, monotonic and by EC2's calendar, that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.seconds)


@dataclass
class World:
    """EC2, Prefect and a pool worker, with instances and flow runs in them."""

    clock: Clock = field(default_factory=Clock)
    aws: Aws = field(default_factory=lambda: Aws("us-east-1"))
    instances: dict[str, Instance] = field(default_factory=dict)
    phases: dict[UUID, RunPhase] = field(default_factory=dict)
    recorded: dict[UUID, str] = field(default_factory=dict)
    messages: dict[UUID, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    """Instances that nobody may end."""
    """What fails now: describe, terminate, read, set, alone."""
    while_reading: Callable[[], None] = lambda: None
    taken_up: set[UUID] = field(default_factory=set)
    """Flow runs that this pool worker is submitting."""
    others: bool = False
    """Whether the pool has other workers."""
    since: dict[UUID, datetime.datetime] = field(default_factory=dict)
    scheduled: list[UUID] = field(default_factory=list)
    interrupted: set[UUID] = field(default_factory=set)

    def observer(self) -> Observer:
        log = logging.Logger("test")
        handler = logging.Handler()
        handler.emit = lambda record: self.logged.append(record.getMessage())  # type: ignore[method-assign]
        log.addHandler(handler)
        self.log = log
        ec2 = cast("Callable[[Aws], Instances]", lambda _: self)
        settings = PoolSettings(poll_seconds=0.001, idle_seconds=0.001)
        return Observer(self, self, settings, log, ec2_of=ec2, clock=self.clock, now=self.clock.now)

    def launch(
        self,
        run_id: UUID | None = None,
        *,
        phase: RunPhase = RunPhase.PENDING,
        pool: str = POOL,
        recorded: bool = True,
    ) -> Instance:
        run_id = run_id or uuid4()
        tags = {POOL_TAG: pool, FLOW_RUN_TAG: str(run_id)}
        instance = Instance(
            f"i-{len(self.instances)}", "us-east-1", "running", "t", "on-demand", self.clock.now(), tags
        )
        self.instances[instance.id] = instance
        self.phases[run_id] = phase
        if recorded and pool == POOL:
            self.recorded[run_id] = instance.identifier
        return instance

    def lose(self, instance: Instance, reason: str = "Server.SpotInstanceTermination") -> None:
        self.instances[instance.id] = replace(instance, state="terminated", reason_code=reason)

    # EC2

    def find(self, tags: Mapping[str, str]) -> list[Instance]:
        self.calls.append("describe")
        self._fail("describe")
        return [each for each in self.instances.values() if tags.items() <= each.tags.items()]

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        self.calls.append(f"terminate {' '.join(sorted(ids))}")
        self._fail("terminate")
        for each in set(ids) - self.kept:
            self.lose(self.instances[each], "Client.UserInitiatedShutdown")
        if left := sorted(self.kept.intersection(ids)):
            facts = {
                "service": "ec2",
                "operation": "TerminateInstances",
                "code": "UnauthorizedOperation",
                "why": "not this one",
            }
            raise TerminationRefused(
                **facts, target=", ".join(left), codes=dict.fromkeys(left, facts["code"]), unknown=frozenset()
            )
        return frozenset()

    # Prefect

    async def read(self, ids: Sequence[UUID]) -> dict[UUID, RunView]:
        self.calls.append("read")
        self._fail("read")
        self.while_reading()
        return {run_id: self._view(run_id) for run_id in ids if run_id in self.phases}

    async def at_work(self, pool: str) -> list[RunView]:
        working = (RunPhase.SUBMITTING, RunPhase.PENDING, RunPhase.ACTIVE, RunPhase.CANCELLING)
        return [self._view(run_id) for run_id, phase in self.phases.items() if phase in working]

    async def crash(self, run_id: UUID, why: str, *, interrupted: bool = False) -> bool:
        if interrupted:
            self.interrupted.add(run_id)
        return self._set(run_id, RunPhase.CRASHED, why)

    async def cancel(self, run_id: UUID, why: str) -> bool:
        return self._set(run_id, RunPhase.CANCELLED, why)

    async def record(self, run_id: UUID, infrastructure: str) -> None:
        self.calls.append("record")
        self._fail("record")
        self.recorded[run_id] = infrastructure

    async def schedule_again(self, run_id: UUID, why: str) -> None:
        self.phases[run_id] = RunPhase.RELEASED
        self.scheduled.append(run_id)

    # The pool worker

    def submitting(self) -> frozenset[UUID]:
        return frozenset(self.taken_up)

    async def is_alone(self) -> bool:
        self._fail("alone")
        return not self.others

    def pool(self) -> tuple[str, str] | None:
        return POOL, "ec2"

    async def home(self) -> Sequence[Aws]:
        return [self.aws]

    async def terms(self, run: Any, region: str) -> Terms:
        return Terms(self.aws, boot_seconds=100)

    def log_of(self, run: Any) -> logging.Logger:
        return self.log

    def _view(self, run_id: UUID) -> RunView:
        since = self.since.get(run_id, START)
        return RunView(run_id, self.phases[run_id], self.recorded.get(run_id), cast("Any", None), since=since)

    def _set(self, run_id: UUID, phase: RunPhase, why: str) -> bool:
        self._fail("set")
        if self.phases[run_id] in (RunPhase.FINAL, RunPhase.CANCELLED):  # a crash may be told again, with its reason
            return False
        self.phases[run_id], self.messages[run_id] = phase, why
        return True

    def _fail(self, what: str) -> None:
        if what in self.broken:
            if what in ("describe", "terminate"):
                raise AwsRefused(service="ec2", operation=what, code="RequestLimitExceeded", target="", why="")
            raise httpx.ConnectError("no answer")


def own(world: World, observer: Observer, phase: RunPhase = RunPhase.ACTIVE) -> tuple[Instance, Watched]:
    """An instance that this process launched."""
    instance = world.launch(phase=phase)
    run_id = UUID(instance.tags[FLOW_RUN_TAG])
    return instance, observer.add(run_id, instance, Terms(world.aws, boot_seconds=100))


def looks(observer: Observer, count: int = 1) -> None:
    async def go() -> None:
        for _ in range(count):
            await observer.look()

    anyio.run(go)
