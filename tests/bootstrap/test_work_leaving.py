"""A worker that is stopped, leaves or is held: what it gives back, what it keeps, and that it takes nothing more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from bootstrap.work import POLL_SECONDS
from fleet.evals.documents import JobMessage
from tests.bootstrap.world import EVAL, WORK, Script, World


@pytest.mark.fault("given-back")
def test_a_stopped_worker_gives_its_jobs_back_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, 10, slots=4)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)
    assert world.work(stop_at=7) == ["stopped"]
    assert world.time.now <= 7 + POLL_SECONDS
    assert all(held.visible_at <= world.time.now for held in world.queues.held)
    assert len(world.queues.held) == 10
    (event,) = [event for event in world.queues.events if event.kind == "given_back"]
    assert event.detail["jobs"] == world.jobs[:4]
    assert all(JobMessage.read(held.body).failures == 0 for held in world.queues.held), "no attempt was counted"
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_is_stopped_while_it_polls_keeps_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    receive = world.queues.receive

    def stop_then_receive(url: str, *, most: int = 10, wait: int = 20) -> list[object]:
        if world.time.now >= 6:
            world.workers[0].stop.set()
            world.queues.send(WORK, [JobMessage(eval_id=EVAL, job="000000-00000000").write()])
        return list(receive(url, most=most, wait=wait))

    world.queues.receive = stop_then_receive  # type: ignore[method-assign, assignment]
    assert world.work() == ["stopped"]
    assert world.ran == []
    assert [held.visible_at <= world.time.now for held in world.queues.held] == [True]


def test_a_stop_that_finds_nothing_in_flight_gives_nothing_back(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    assert world.work(stop_at=4) == ["stopped"]
    assert world.queues.kinds() == []


def test_a_queue_that_is_gone_ends_the_work_and_its_runners(tmp_path: Path) -> None:
    world = World(tmp_path, 4, slots=8)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)
    assert world.work(gone_at=20) == ["queue gone"]
    assert world.at_once == 0
    assert world.time.now < 40


def leaving(world: World, by: float, keeps: Callable[[float, Sequence[float]], bool]) -> Callable[[], None]:
    return lambda: world.workers[0].leave("interrupted", "it goes", by=by, keeps=keeps)


def test_one_that_leaves_takes_nothing_more_and_what_is_kept_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, 10, slots=4)
    for job, seconds in zip(world.jobs, (20, 500, 30, 500, 1, 1, 1, 1, 1, 1), strict=True):
        world.scripts[job] = Script(seconds=seconds)
    seen: list[list[str]] = []
    world.at(10, leaving(world, 100, lambda _elapsed, _done: True))
    world.at(101, lambda: seen.append(world.waiting()))
    assert world.work() == ["interrupted"]
    assert world.results() == [world.jobs[0], world.jobs[2]]
    assert world.time.now <= 101, "what isn't done by then goes back"
    assert world.waiting() == sorted({*world.jobs} - {*world.results()})
    (event,) = [event for event in world.queues.events if event.kind == "given_back"]
    assert event.detail["jobs"] == [world.jobs[1], world.jobs[3]]
    assert all(JobMessage.read(held.body).failures == 0 for held in world.queues.held), "no attempt was counted"


def test_one_that_leaves_gives_back_at_once_what_is_not_kept(tmp_path: Path) -> None:
    """By what is known of the eval: seconds in flight, and those of the jobs that were done."""
    world = World(tmp_path, 6, slots=3)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)
    world.scripts[world.jobs[0]] = Script(seconds=4)
    world.scripts[world.jobs[3]] = Script(seconds=50)  # begun when the first was done
    asked: list[tuple[float, list[float]]] = []
    seen: list[list[str]] = []

    def keeps(elapsed: float, done: Sequence[float]) -> bool:
        asked.append((elapsed, list(done)))
        return elapsed < 10

    world.at(12, leaving(world, 200, keeps))
    world.at(12.5, lambda: seen.append(world.waiting()))
    assert world.work() == ["interrupted"]
    assert asked == [(12, [4]), (12, [4]), (8, [4])]
    assert seen == [[world.jobs[1], world.jobs[2], world.jobs[4], world.jobs[5]]], "within a moment"
    assert world.results() == [world.jobs[0], world.jobs[3]]
    assert world.time.now == 54, "and it ends with its last job"


def test_a_job_whose_result_is_being_put_as_the_worker_leaves_is_done_and_not_given_back(tmp_path: Path) -> None:
    world = World(tmp_path, 2, slots=2)
    world.scripts[world.jobs[1]] = Script(seconds=1000)
    put_new = world.objects.put_new

    def leave_then_put(key: str, data: bytes | BinaryIO) -> bool:
        leaving(world, 900, lambda *_: False)()
        return put_new(key, data)

    world.objects.put_new = leave_then_put  # type: ignore[method-assign]
    assert world.work() == ["interrupted"]
    (worker,) = world.workers
    assert (world.results(), world.waiting()) == ([world.jobs[0]], [world.jobs[1]])
    assert (worker.outcomes, worker.given_back) == ({"done": 1}, [world.jobs[1]])
    assert worker.deliveries.stored == set()
    (event,) = [event for event in world.queues.events if event.kind == "given_back"]
    assert event.detail["jobs"] == [world.jobs[1]]


def test_an_earlier_end_counts_and_a_stop_still_ends_it_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, 2, slots=2)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)
    world.at(10, leaving(world, 900, lambda *_: True))
    world.at(20, leaving(world, 40, lambda *_: True))
    world.at(25, leaving(world, 800, lambda *_: True))
    assert world.work() == ["interrupted"]
    assert world.time.now == 40
    world = World(tmp_path, 2, slots=2)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)
    world.at(10, leaving(world, 900, lambda *_: True))
    assert world.work(stop_at=15) == ["interrupted"]
    assert (world.time.now, world.waiting()) == (15, world.jobs)


def test_a_message_that_comes_as_it_leaves_goes_back_unrun(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    receive = world.queues.receive

    def leave_then_receive(url: str, *, most: int = 10, wait: int = 20) -> list[object]:
        if world.time.now >= 6:
            leaving(world, 900, lambda *_: True)()
            world.queues.send(WORK, [JobMessage(eval_id=EVAL, job="000000-00000000").write()])
        return list(receive(url, most=most, wait=wait))

    world.queues.receive = leave_then_receive  # type: ignore[method-assign, assignment]
    assert world.work() == ["interrupted"]
    assert (world.ran, world.waiting()) == ([], ["000000-00000000"])


def test_a_held_worker_takes_nothing_does_not_idle_out_and_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, 5, slots=2)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=10)
    seen: list[tuple[list[str], int]] = []
    world.at(5, lambda: world.workers[0].hold())
    world.at(300, lambda: seen.append(([*world.ran], sum(held.receives for held in world.queues.held))))
    world.at(301, lambda: world.workers[0].resume())
    assert world.work() == ["idle"]
    assert seen == [(world.jobs[:2], 0)], "those in flight are done, and no other is handed out"
    assert world.results() == world.jobs
