"""The watch carries out its verdicts, survives what fails, and finds again what another process launched."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID, uuid4

import anyio
import httpx
import pytest

from fleet.aws.failures import AwsRefused
from fleet.aws.instances import Instance, Instances, TerminationRefused
from fleet.aws.session import Aws
from fleet.pool import boot_log
from fleet.pool.observer import UNCLAIMED_S, Observer
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


@pytest.fixture
def world() -> World:
    return World()


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


def test_one_describe_and_one_read_serve_all_instances(world: World) -> None:
    observer = world.observer()
    for _ in range(50):
        own(world, observer)
    looks(observer, 3)
    assert world.calls == ["describe", "read"] * 3


@pytest.mark.fault("instance-dies")
def test_a_lost_instance_crashes_its_flow_run_with_the_reason(world: World) -> None:
    observer = world.observer()
    instance, watch = own(world, observer)
    looks(observer)
    assert not watch.done.is_set()
    world.lose(instance)
    looks(observer)
    assert watch.done.is_set()
    assert "i-0: the instance is gone: EC2 took the spot capacity back" in world.messages[watch.run_id]
    assert world.interrupted == {watch.run_id}
    assert world.messages[watch.run_id] in world.logged


@pytest.mark.fault("boot-fails")
def test_the_end_of_the_boot_log_goes_into_the_flow_runs_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_log, "tail", lambda aws, folder, instance: f"last words of {instance}")
    observer = world.observer()
    instance, _ = own(world, observer)
    world.lose(instance)
    looks(observer)
    assert any("last words of i-0" in line for line in world.logged)


@pytest.mark.fault("cancelled")
def test_cancelled_runs_lose_their_instances_in_one_call_and_are_cancelled(world: World) -> None:
    observer = world.observer()
    watches = [own(world, observer, RunPhase.CANCELLING)[1] for _ in range(3)]
    looks(observer)
    assert world.calls[-1] == "terminate i-0 i-1 i-2"
    assert {world.phases[watch.run_id] for watch in watches} == {RunPhase.CANCELLED}
    assert not any(watch.done.is_set() for watch in watches), "asked is not done"
    looks(observer)
    assert all(watch.done.is_set() for watch in watches)


def test_a_run_is_not_called_cancelled_while_its_instance_cannot_be_terminated(world: World) -> None:
    observer = world.observer()
    _, watch = own(world, observer, RunPhase.CANCELLING)
    world.broken = {"terminate"}
    looks(observer, 2)
    assert world.phases[watch.run_id] is RunPhase.CANCELLING
    world.broken = set()
    looks(observer, 2)
    assert world.phases[watch.run_id] is RunPhase.CANCELLED
    assert watch.done.is_set()


def test_an_instance_that_may_not_be_ended_holds_up_no_other_run(world: World) -> None:
    observer = world.observer()
    first, kept = own(world, observer, RunPhase.CANCELLING)
    _, other = own(world, observer, RunPhase.CANCELLING)
    world.kept = {first.id}
    looks(observer)
    assert (world.phases[kept.run_id], world.phases[other.run_id]) == (RunPhase.CANCELLING, RunPhase.CANCELLED)
    assert f"the end of {first.id}" in world.logged[0]


@pytest.mark.fault("boot-fails")
def test_no_boot_in_time_terminates_and_crashes(world: World) -> None:
    observer = world.observer()
    _, watch = own(world, observer, RunPhase.PENDING)
    looks(observer)
    world.clock.seconds += 101
    looks(observer)
    assert "no boot within 100 s" in world.messages[watch.run_id]
    assert world.instances["i-0"].leaving


def test_an_instance_may_outlive_its_flow_run_for_a_moment(world: World) -> None:
    observer = world.observer()
    _, watch = own(world, observer)
    world.phases[watch.run_id] = RunPhase.FINAL
    looks(observer)
    world.clock.seconds += 29
    looks(observer)
    assert not world.instances["i-0"].leaving
    world.clock.seconds += 1
    looks(observer, 2)
    assert world.instances["i-0"].leaving
    assert watch.done.is_set()


@pytest.mark.parametrize("what", ["describe", "read"])
def test_an_answer_that_does_not_come_decides_nothing(world: World, what: str) -> None:
    observer = world.observer()
    _, watch = own(world, observer)
    world.broken = {what}
    world.clock.seconds += 10_000

    async def go() -> None:
        for _ in range(3):
            try:
                await observer.look()
            except httpx.HTTPError:
                assert what == "read"

    anyio.run(go)
    world.broken = set()
    assert not watch.done.is_set()
    assert not world.messages
    assert not world.instances["i-0"].leaving


def test_a_state_that_cannot_be_set_is_set_at_the_next_look(world: World) -> None:
    observer = world.observer()
    instance, watch = own(world, observer)
    world.lose(instance)
    world.broken = {"set"}
    looks(observer)
    assert not watch.done.is_set()
    world.broken = set()
    looks(observer)
    assert watch.done.is_set()
    assert watch.run_id in world.messages


def test_an_instance_that_is_launched_during_a_look_is_not_judged_by_it(world: World) -> None:
    """Its flow run isn't among those that were read: it must not count as deleted."""
    observer = world.observer()
    added: list[Watched] = []
    world.while_reading = lambda: added.append(own(world, observer)[1]) if not added else None
    looks(observer)
    assert world.calls == ["describe", "read"]
    looks(observer, 2)
    assert not added[0].done.is_set()
    assert not world.instances["i-0"].leaving


# Adoption


@pytest.mark.fault("pool-worker-dies")
def test_after_a_restart_the_instances_of_the_pool_are_watched_again(world: World) -> None:
    lost, cancelled, other = (world.launch(phase=RunPhase.ACTIVE, pool=pool) for pool in (POOL, POOL, "another pool"))
    observer = world.observer()
    looks(observer)
    assert observer.watched == {lost.id, cancelled.id}
    world.lose(lost)
    world.phases[UUID(cancelled.tags[FLOW_RUN_TAG])] = RunPhase.CANCELLING
    looks(observer, 2)
    assert world.instances[cancelled.id].leaving
    assert "spot" in world.messages[UUID(lost.tags[FLOW_RUN_TAG])]
    assert observer.watched == frozenset()
    assert not world.instances[other.id].leaving


def test_an_adopted_instance_is_as_old_as_it_is(world: World) -> None:
    instance = world.launch()
    world.clock.seconds += 99
    observer = world.observer()
    looks(observer)
    assert not world.instances[instance.id].leaving
    world.clock.seconds += 2
    looks(observer)
    assert world.instances[instance.id].leaving


@pytest.mark.parametrize("adopted", [True, False])
def test_an_instance_that_its_flow_run_does_not_name_is_recorded_there(world: World, adopted: bool) -> None:
    """Prefect only logs an update that failed; without it, nobody could give the instance its secrets."""
    instance = world.launch(recorded=False)
    run_id = UUID(instance.tags[FLOW_RUN_TAG])
    observer = world.observer()
    if not adopted:
        observer.add(run_id, instance, Terms(world.aws, boot_seconds=100))
    world.broken.add("record")
    looks(observer)
    assert world.recorded == {}
    assert instance.id in observer.watched
    world.broken.clear()
    looks(observer, 3)
    assert world.recorded == {run_id: f"us-east-1::{instance.id}"}
    assert world.calls.count("record") == 2


def test_the_newer_instance_of_a_flow_run_is_the_one_that_is_recorded(world: World) -> None:
    """A new attempt whose record failed stands beside the record of the attempt before."""
    older = world.launch()
    run_id = UUID(older.tags[FLOW_RUN_TAG])
    world.lose(older)
    world.clock.seconds += 10
    newer = world.launch(run_id, recorded=False)
    observer = world.observer()
    looks(observer, 3)
    assert world.recorded == {run_id: f"us-east-1::{newer.id}"}
    world.recorded[run_id] = "us-east-1::i-unseen"
    looks(observer, 2)
    assert world.recorded == {run_id: "us-east-1::i-unseen"}, "EC2 may not show it yet"


@pytest.mark.parametrize("phase", [RunPhase.CANCELLING, RunPhase.FINAL, RunPhase.RELEASED])
def test_what_needs_no_instance_any_more_gets_no_record_of_one(world: World, phase: RunPhase) -> None:
    world.launch(phase=phase, recorded=False)
    looks(world.observer(), 2)
    assert world.recorded == {}


@pytest.mark.fault("pool-worker-dies")
def test_a_flow_run_whose_instance_ended_while_nobody_watched_is_crashed(world: World) -> None:
    instance = world.launch(phase=RunPhase.ACTIVE)
    run_id = UUID(instance.tags[FLOW_RUN_TAG])
    world.recorded[run_id] = f"us-east-1::{instance.id}"
    world.lose(instance, "Client.InstanceInitiatedShutdown")
    observer = world.observer()
    looks(observer, 2)
    assert "powered itself off" in world.messages[run_id]


def test_so_is_one_whose_instance_ec2_has_forgotten_and_only_after_a_while(world: World) -> None:
    run_id = uuid4()
    world.phases[run_id], world.recorded[run_id] = RunPhase.ACTIVE, "us-east-1::i-0123"
    observer = world.observer()
    looks(observer, 2)
    assert not world.messages
    world.clock.seconds += 60
    looks(observer)
    assert "doesn't know it any more" in world.messages[run_id]


def test_a_run_that_is_submitted_anew_is_not_judged_by_its_old_instance(world: World) -> None:
    instance = world.launch()
    run_id = UUID(instance.tags[FLOW_RUN_TAG])
    world.recorded[run_id], world.phases[run_id] = f"us-east-1::{instance.id}", RunPhase.SUBMITTING
    world.lose(instance)
    observer = world.observer()
    looks(observer, 3)
    assert not world.messages


def test_an_instance_whose_flow_run_is_deleted_is_terminated(world: World) -> None:
    instance = world.launch()
    world.phases.clear()
    looks(world.observer(), 2)
    assert world.instances[instance.id].leaving


def test_an_instance_that_is_being_launched_is_no_stranger(world: World) -> None:
    observer = world.observer()
    run_id = uuid4()

    async def launch() -> Instance:
        with observer.launching(run_id):
            instance = world.launch(run_id)
            await observer.look()
            assert observer.watched == frozenset()
            observer.add(run_id, instance, Terms(world.aws, boot_seconds=100))
        return instance

    instance = anyio.run(launch)
    looks(observer)
    assert observer.watched == {instance.id}


def test_a_new_attempt_ends_the_instance_of_the_one_before_and_leaves_the_run_alone(world: World) -> None:
    observer = world.observer()
    old, watch = own(world, observer)

    async def launch() -> Instance:
        with observer.launching(watch.run_id):
            await observer.look()
            assert world.instances[old.id].leaving
            world.clock.seconds += 1
            new = world.launch(watch.run_id)
            observer.add(watch.run_id, new, Terms(world.aws, boot_seconds=100))
        return new

    new = anyio.run(launch)
    looks(observer, 2)
    assert observer.watched == {new.id}
    assert not world.messages
    assert not world.instances[new.id].leaving


def test_of_two_strangers_with_one_flow_run_the_later_one_stays(world: World) -> None:
    old = world.launch()
    world.clock.seconds += 1
    new = world.launch(UUID(old.tags[FLOW_RUN_TAG]))
    observer = world.observer()
    looks(observer, 2)
    assert (world.instances[old.id].leaving, world.instances[new.id].leaving) == (True, False)
    assert not world.messages


# The loop


def in_loop(observer: Observer, story: Callable[[], Awaitable[None]]) -> None:
    async def go() -> None:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(observer.run)
                await story()
                observer.leave()

    anyio.run(go)


def test_the_loop_outlives_failures_and_complains_once(world: World) -> None:
    observer = world.observer()
    world.broken = {"describe", "read"}

    async def story() -> None:
        instance, watch = own(world, observer)
        while world.calls.count("describe") < 5:  # noqa: ASYNC110  looks are counted, not time
            await anyio.sleep(0.001)
        world.broken = set()
        world.lose(instance)
        await watch.done.wait()

    in_loop(observer, story)
    assert sum("instances in us-east-1" in line for line in world.logged) == 1
    assert sum("a look at the instances" in line for line in world.logged) == 1


def test_the_loop_leaves_only_when_its_own_instances_need_it_no_more(world: World) -> None:
    observer = world.observer()
    world.launch(phase=RunPhase.ACTIVE)  # another process's: it waits for no one here

    async def story() -> None:
        instance, watch = own(world, observer)
        observer.leave()
        await anyio.sleep(0.02)
        assert not watch.done.is_set()
        world.lose(instance)
        await watch.done.wait()

    in_loop(observer, story)


def test_before_prefects_first_word_nothing_is_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "pool", lambda: None)
    looks(world.observer())
    assert world.calls == []


# Launches under way, and what nobody claims


@pytest.mark.parametrize("phase", [RunPhase.CANCELLING, RunPhase.CANCELLED, RunPhase.FINAL, None])
def test_a_launch_is_stopped_once_its_flow_run_needs_no_instance(phase: RunPhase | None) -> None:
    world, run_id, other = World(), uuid4(), uuid4()
    observer = world.observer()
    world.phases[run_id] = world.phases[other] = RunPhase.SUBMITTING

    async def story() -> None:
        with observer.launching(run_id) as wanted, observer.launching(other) as others:
            await observer.look()
            assert not wanted.cancel_called
            if phase is None:
                del world.phases[run_id]
            else:
                world.phases[run_id] = phase
            await observer.look()
            assert (wanted.cancel_called, others.cancel_called) == (True, False)

    anyio.run(story)


def unclaimed(world: World) -> Instance:
    """An instance of the pool that has no tag with a flow run yet."""
    instance = world.launch()
    del world.phases[UUID(instance.tags[FLOW_RUN_TAG])]
    world.instances[instance.id] = replace(instance, tags={POOL_TAG: POOL})
    return world.instances[instance.id]


def test_an_instance_without_its_flow_run_is_left_to_whoever_launches_it_and_ended_when_that_is_too_long_ago() -> None:
    """Another pool worker's launch may be between the answer and the tag; one that was killed there never comes back."""
    world = World()
    observer = world.observer()
    instance = unclaimed(world)
    world.clock.seconds += PoolSettings().launch_seconds + UNCLAIMED_S - 1
    anyio.run(observer.look)
    assert not world.instances[instance.id].leaving
    world.broken.add("terminate")
    world.clock.seconds += 2
    anyio.run(observer.look)
    world.broken.clear()
    anyio.run(observer.look)
    assert world.instances[instance.id].leaving
    assert observer.watched == frozenset()
    assert any("launched for this pool, but for no flow run" in line for line in world.logged)


def test_an_instance_that_is_watched_is_never_taken_for_unclaimed() -> None:
    """EC2's describe may show an instance without the tag that was written on it a moment ago."""
    world = World()
    observer = world.observer()
    instance = unclaimed(world)
    run_id = uuid4()
    world.phases[run_id] = RunPhase.ACTIVE
    observer.add(run_id, instance, Terms(world.aws, boot_seconds=100))
    world.clock.seconds += 10_000
    anyio.run(observer.look)
    assert not world.instances[instance.id].leaving


# Flow runs between two pool workers


def taken_up(world: World) -> UUID:
    """A flow run that a pool worker made Pending, and nothing more."""
    run_id = uuid4()
    world.phases[run_id], world.since[run_id] = RunPhase.SUBMITTING, world.clock.now()
    return run_id


@pytest.mark.fault("pool-worker-dies")
def test_a_run_that_a_killed_pool_worker_had_taken_up_is_launched_after_all(world: World) -> None:
    run_id = taken_up(world)
    looks(world.observer())
    assert world.scheduled == [run_id]


def test_a_run_that_is_being_launched_is_left_alone(world: World) -> None:
    """By this pool worker, on its way to a launch or in one; or by an instance that boots already, adopted or own."""
    observer = world.observer()
    world.taken_up = {taken_up(world)}
    world.launch(phase=RunPhase.SUBMITTING, recorded=False)
    own(world, observer, RunPhase.SUBMITTING)
    run_id = taken_up(world)

    async def go() -> None:
        with observer.launching(run_id):
            for _ in range(3):
                await observer.look()
                world.clock.seconds += PoolSettings().sweep_seconds + 1

    anyio.run(go)
    assert world.scheduled == []


def test_instances_are_judged_while_prefect_does_not_say_who_is_at_work(world: World) -> None:
    observer = world.observer()
    _, watch = own(world, observer, RunPhase.CANCELLING)
    taken_up(world)
    world.broken = {"alone"}
    looks(observer)
    assert world.phases[watch.run_id] is RunPhase.CANCELLED
    assert world.scheduled == []


def test_another_pool_worker_gets_the_time_that_a_launch_may_take(world: World) -> None:
    world.others = True
    observer, run_id = world.observer(), taken_up(world)
    longest = PoolSettings().launch_seconds + UNCLAIMED_S
    world.clock.seconds += longest
    looks(observer)
    assert world.scheduled == []
    world.clock.seconds += PoolSettings().sweep_seconds
    looks(observer)
    assert world.scheduled == [run_id]
