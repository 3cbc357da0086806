"""The watch finds again what another process launched, and tells which instance is a flow run's."""

from __future__ import annotations

from uuid import UUID, uuid4

import anyio
import pytest

from fleet.aws.instances import Instance
from fleet.pool.order import FLOW_RUN_TAG
from fleet.pool.verdict import RunPhase
from fleet.pool.watched import Terms
from tests.fleet.pool.observed import POOL, World, looks, own


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
