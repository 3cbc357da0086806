"""Launches under way, instances that nobody claims, and flow runs between two pool workers."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import anyio
import pytest

from fleet.aws.instances import Instance
from fleet.pool.observer import UNCLAIMED_S
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG
from fleet.pool.settings import PoolSettings
from fleet.pool.verdict import RunPhase
from fleet.pool.watched import Terms
from tests.fleet.pool.observed import POOL, World, looks, own


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
