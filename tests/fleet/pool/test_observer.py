"""The watch carries out its verdicts, and survives what fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import httpx
import pytest

from fleet.pool import boot_log
from fleet.pool.observer import Observer
from fleet.pool.verdict import RunPhase
from fleet.pool.watched import Watched
from tests.fleet.pool.observed import World, looks, own


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
