"""Launches of one moment and one shape meet in one group, and part without harm to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from fleet.aws.capacity import Candidate, NoCapacity
from fleet.aws.hunt import Member
from fleet.aws.instances import Instance, LaunchOrder
from fleet.aws.session import Aws
from fleet.pool.launch_desk import LaunchDesk, group_name
from tests.fleet.aws.ec2 import DRY, OK, ORDER, Clock, FakeEc2

PLACES = [Candidate("a", "s1", "on-demand"), Candidate("a", "s2", "on-demand")]
HERE = Aws("us-east-1")


class Pool:
    """A pool worker's desk over a fake EC2, on a clock where nothing waits."""

    def __init__(self, ec2: FakeEc2 | None = None, **more: Any) -> None:
        self.ec2, self.clock = ec2 or FakeEc2(), Clock()
        self.got: dict[str, Instance | BaseException] = {}
        self.desk: LaunchDesk
        self._more = more
        self.scopes: dict[str, anyio.CancelScope] = {}

    def run(self, *stories: Callable[[], Any]) -> None:
        async def go() -> None:
            async with anyio.create_task_group() as group:
                self.desk = LaunchDesk(
                    lambda: group,
                    deadline_seconds=60,
                    launcher_of=lambda _: self.ec2,
                    clock=self.clock,
                    sleep=self.clock.sleep,
                    draw=lambda: 0.5,
                    **self._more,
                )
                for story in stories:
                    group.start_soon(story)

        anyio.run(go)

    def launch(
        self, run: str, *, order: LaunchOrder = ORDER, aws: Aws = HERE, places: list[Candidate] | None = None
    ) -> Callable[[], Any]:
        async def story() -> None:
            with anyio.CancelScope() as scope:
                self.scopes[run] = scope
                mine = replace(order, attempt=f"attempt of {run}")
                try:
                    self.got[run] = await self.desk.launch(aws, mine, places or PLACES, {"flow-run": run})
                except Exception as error:  # noqa: BLE001  what the flow run hears
                    self.got[run] = error

        return story

    @property
    def counts(self) -> list[int]:
        return sorted(ask.count for ask in self.ec2.asks)

    def ids(self) -> set[str]:
        return {each.id for each in self.got.values() if isinstance(each, Instance)}


def test_flow_runs_of_one_moment_cost_one_call_and_each_has_an_instance_with_its_tag() -> None:
    pool = Pool()
    pool.run(*(pool.launch(f"run-{number}") for number in range(24)))
    assert pool.counts == [24]
    for run, instance in pool.got.items():
        assert isinstance(instance, Instance)
        assert pool.ec2.running[instance.id].tags["flow-run"] == run
    assert set(pool.ec2.running) == pool.ids()


def test_a_group_has_an_end_and_the_next_one_begins() -> None:
    pool = Pool(most=10)
    pool.run(*(pool.launch(f"run-{number}") for number in range(24)))
    assert pool.counts == [4, 10, 10]
    assert set(pool.ec2.running) == pool.ids()
    assert len(pool.got) == 24


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("user data", {"order": replace(ORDER, user_data="#!/bin/bash\n# of this flow run\n")}),
    ("tags", {"order": replace(ORDER, tags={"inspect-fleet:pool": "q"})}),
    ("image", {"order": replace(ORDER, image="ami-2")}),
    ("volume", {"order": replace(ORDER, volume_gb=200)}),
    ("groups", {"order": replace(ORDER, security_groups=())}),
    ("places", {"places": PLACES[:1]}),
    ("clients", {"aws": Aws("us-east-1")}),
]


@pytest.mark.parametrize("other", [other for _, other in OTHERS], ids=[name for name, _ in OTHERS])
def test_what_differs_is_asked_for_on_its_own(other: dict[str, Any]) -> None:
    pool = Pool()
    pool.run(pool.launch("run-1"), pool.launch("run-2", **other), pool.launch("run-3"))
    assert pool.counts == [1, 2]
    assert set(pool.ec2.running) == pool.ids()
    assert len(pool.got) == 3


def test_who_comes_later_is_asked_for_later() -> None:
    pool = Pool()

    async def later() -> None:
        while not pool.got:
            await anyio.lowlevel.checkpoint()
        await pool.launch("run-2")()

    pool.run(pool.launch("run-1"), later)
    assert pool.counts == [1, 1]
    assert len({ask.token for ask in pool.ec2.asks}) == 2


@pytest.mark.fault("fewer-instances")
def test_each_hears_why_it_has_none() -> None:
    pool = Pool(FakeEc2([DRY]))
    pool.run(*(pool.launch(f"run-{number}") for number in range(3)))
    assert [type(error) for error in pool.got.values()] == [NoCapacity] * 3
    assert pool.ec2.running == {}


def test_each_hears_of_a_bug_before_anything_was_asked_and_the_next_ones_are_served() -> None:
    pool = Pool()
    launchers = iter([KeyError("a bug")])

    def launcher(_: Aws) -> FakeEc2:
        for error in launchers:
            raise error
        return pool.ec2

    async def one_after_the_other() -> None:
        pool.desk._launcher_of = launcher
        await pool.launch("run-1")()
        await pool.launch("run-2")()

    pool.run(one_after_the_other)
    assert isinstance(pool.got["run-1"], KeyError)
    assert isinstance(pool.got["run-2"], Instance)


@pytest.mark.parametrize("when", ["gathering", "asking", "tagging"])
@pytest.mark.fault("launch-error")
def test_a_flow_run_that_is_cancelled_leaves_its_group_and_no_instance(when: str) -> None:
    """The others have theirs; what was launched for it is ended, at whatever step it left."""
    pool = Pool()

    def strike() -> None:
        anyio.from_thread.run_sync(pool.scopes["run-1"].cancel)

    async def at_once() -> None:
        while len(pool.scopes) < 3:
            await anyio.lowlevel.checkpoint()
        if when == "gathering":
            pool.scopes["run-1"].cancel()

    if when == "asking":
        pool.ec2.before_answer = strike
    elif when == "tagging":
        pool.ec2.before_tag = strike
    pool.run(*(pool.launch(f"run-{number}") for number in range(3)), at_once)
    assert "run-1" not in pool.got
    assert set(pool.ec2.running) == pool.ids()
    assert len(pool.got) == 2
    assert pool.counts == ([2] if when == "gathering" else [3])


@pytest.mark.fault("launch-error")
def test_an_instance_that_is_handed_over_to_somebody_who_leaves_in_that_moment_is_ended() -> None:
    pool = Pool()

    async def leave() -> None:
        while not (pool.ec2.tagged and pool.ec2.running):
            await anyio.lowlevel.checkpoint()
        pool.scopes["run-0"].cancel()

    pool.run(pool.launch("run-0"), leave)
    assert set(pool.ec2.running) == pool.ids()


@pytest.mark.fault("launch-error")
def test_a_pool_worker_that_is_stopped_leaves_nothing() -> None:
    pool = Pool()

    async def go() -> None:
        async with anyio.create_task_group() as group:
            pool.ec2.before_tag = lambda: anyio.from_thread.run_sync(group.cancel_scope.cancel)
            pool.desk = LaunchDesk(
                lambda: group,
                deadline_seconds=60,
                launcher_of=lambda _: pool.ec2,
                clock=pool.clock,
                sleep=pool.clock.sleep,
            )
            for number in range(3):
                group.start_soon(pool.launch(f"run-{number}"))

    anyio.run(go)
    assert set(pool.ec2.running) == pool.ids()
    assert len(pool.ec2.asks) == 1


def test_what_an_account_does_not_allow_is_asked_for_once_by_a_pool_worker() -> None:
    """Spot over several places together; the next group asks one by one from the start."""
    spot = [Candidate("a", "s1", "spot"), Candidate("a", "s2", "spot")]
    pool = Pool(FakeEc2([OK], together=False))

    async def one_after_the_other() -> None:
        await pool.launch("run-1", places=spot)()
        await pool.launch("run-2", places=spot)()

    pool.run(one_after_the_other)
    assert Counter(len(ask.places) for ask in pool.ec2.asks) == {1: 2, 2: 1}


def test_a_group_s_name_fits_a_launch_template_and_is_new_for_each_set_of_attempts() -> None:
    one = group_name([Member("a", {}), Member("b", {})])
    assert one == group_name([Member("b", {}), Member("a", {})])
    assert one != group_name([Member("a", {})])
    assert len(f"inspect-fleet-{one}") <= 128
    assert one.isalnum()
