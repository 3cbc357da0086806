"""A worker takes jobs, keeps their leases, tells of them and ends when none is left, on a clock that no test waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.work import POLL_SECONDS, QUIET_SECONDS, SILENT_SECONDS
from fleet.aws.failures import Throttled
from fleet.aws.queues import Depth
from tests.bootstrap.mishaps import refusal
from tests.bootstrap.world import EVAL, LAYOUT, Script, World


def test_every_job_runs_once_and_the_worker_ends_when_it_is_idle(tmp_path: Path) -> None:
    world = World(tmp_path, 25)
    assert world.work() == ["idle"]
    assert world.results() == world.jobs
    assert sorted(world.ran) == world.jobs
    assert world.queues.held == []
    assert list(tmp_path.iterdir()) == [], "logs are gone from the disk once they are put"
    assert world.workers[0].outcomes == {"done": 25}


def test_no_more_jobs_run_at_a_time_than_there_are_slots(tmp_path: Path) -> None:
    world = World(tmp_path, 20, slots=3)
    world.work()
    assert world.most_at_once == 3


def test_idle_time_counts_from_the_last_job_and_never_while_one_runs(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(seconds=500)
    assert world.work() == ["idle"]
    assert 500 + QUIET_SECONDS <= world.time.now <= 500 + QUIET_SECONDS + POLL_SECONDS


def test_a_worker_for_which_no_job_is_left_does_not_wait_for_those_of_others(tmp_path: Path) -> None:
    """The holder takes its own job up again, and the controller replaces a holder that is lost."""
    world = World(tmp_path, 2, slots=1)
    world.scripts[world.jobs[0]] = Script(seconds=500)
    ended: list[str] = []
    world.at(1 + QUIET_SECONDS + 2 * POLL_SECONDS, lambda: ended.extend(world.ends))
    assert world.work(workers=2) == ["idle", "idle"]
    assert ended == ["idle"]
    assert sorted(world.ran) == world.jobs


@pytest.mark.fault("instance-dies")
def test_a_worker_that_comes_in_place_of_a_lost_one_stays_until_its_jobs_come_back(tmp_path: Path) -> None:
    """It may be there before the lost one's lease has lapsed: were it to go, nobody would take its place again."""
    world = World(tmp_path, 1)
    (lost,) = world.queues.held
    lost.receives, lost.visible_at = 1, 50
    assert world.work() == ["idle"]
    assert world.ran == world.jobs


def test_a_worker_that_has_had_no_job_does_not_stay_for_ever(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    (other,) = world.queues.held
    other.receives, other.visible_at = 1, 1e6
    assert world.work() == ["idle"]
    assert 60 <= world.time.now <= 60 + POLL_SECONDS


@pytest.mark.parametrize("refused", [None, refusal(Throttled, "RequestThrottled")], ids=["a job waits", "not known"])
def test_a_worker_stays_its_idle_seconds_where_a_job_may_come(tmp_path: Path, refused: Throttled | None) -> None:
    """A message that this queue holds for others is to be seen; what SQS doesn't say is no reason to go."""
    world = World(tmp_path, 0, lease_seconds=20)
    if refused:
        world.queues.refuse["depth"] = refused
    else:
        world.queues.depth = lambda url: Depth(waiting=0, leased=0, delayed=1)  # type: ignore[method-assign]
    assert world.work() == ["idle"]
    assert 30 <= world.time.now <= 30 + POLL_SECONDS


def test_a_queue_that_does_not_answer_for_a_while_is_no_reason_to_go(tmp_path: Path) -> None:
    """Else a minute without SQS would end every instance that has nothing in flight, with the queue full.

    Also after hours in which it wasn't asked.
    """
    world = World(tmp_path, 2, slots=1)
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.at(500, lambda: world.queues.refuse.update(receive=refusal(Throttled, "RequestThrottled")))
    world.at(1000 + SILENT_SECONDS - 20, world.queues.refuse.clear)
    assert world.work() == ["idle"]
    assert world.results() == world.jobs


def test_a_queue_that_never_answers_ends_the_work(tmp_path: Path) -> None:
    world = World(tmp_path, 2)
    world.queues.refuse["receive"] = refusal(Throttled, "RequestThrottled")
    assert world.work() == ["idle"]
    assert SILENT_SECONDS < world.time.now < SILENT_SECONDS + 2 * world.lease_seconds


def test_the_result_is_put_then_told_then_the_message_deleted(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.work()
    job = world.jobs[0]
    steps = [step for step in world.journal if step != "event beat"]
    assert steps == [
        f"event job_started {job}",
        f"run {job}",
        f"put {LAYOUT.result(EVAL, job)}",
        f"event job_done {job}",
        "done",
    ]


def test_job_done_says_what_the_progress_needs(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.work()
    (event,) = [event for event in world.queues.events if event.kind == "job_done"]
    assert event.detail == {"seconds": 1.0, "samples": 2, "errors": 1, "tokens": 7}


@pytest.mark.fault("duplicate-delivery")
def test_a_job_that_has_a_result_is_acknowledged_without_running(tmp_path: Path) -> None:
    world = World(tmp_path, 2)
    world.objects.held[LAYOUT.result(EVAL, world.jobs[0])] = b"another's"
    world.work()
    assert world.ran == [world.jobs[1]]
    assert world.queues.held == []
    assert world.objects.held[LAYOUT.result(EVAL, world.jobs[0])] == b"another's"


def test_a_job_longer_than_its_lease_stays_with_its_worker(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.work(workers=2)
    assert world.ran == world.jobs


@pytest.mark.fault("lease-lapses")
def test_two_failed_renewals_lose_no_lease(tmp_path: Path) -> None:
    """The lease is renewed each quarter, so the third try is still in time."""
    world = World(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(seconds=100)
    failures = 0
    renew = world.queues.extend

    def failing_twice(url: str, receipt: str, seconds: int) -> None:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise refusal(Throttled, "RequestThrottled")
        renew(url, receipt, seconds)

    world.queues.extend = failing_twice  # type: ignore[method-assign]
    world.work(workers=2)
    assert world.ran == world.jobs


@pytest.mark.fault("lease-lapses", "duplicate-delivery")
def test_a_lost_lease_wastes_nothing_the_first_result_stays(tmp_path: Path) -> None:
    world = World(tmp_path, 2, slots=1)
    job, other = world.jobs
    world.scripts.update({job: Script(seconds=100), other: Script(seconds=70)})
    world.queues.refuse["extend"] = refusal(Throttled, "RequestThrottled")
    assert world.work(workers=2) == ["idle", "idle"]
    assert world.ran == [other, job, job], "the lease lapsed, and the other worker ran it too"
    assert world.objects.held[LAYOUT.result(EVAL, job)] == b"log 2"
    assert world.queues.held == []
    assert any("has a result already" in line for line in world.said)


def test_a_beat_tells_slots_and_jobs_every_few_seconds(tmp_path: Path) -> None:
    world = World(tmp_path, 2, slots=4)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=18)
    world.work()
    beats = [event.detail for event in world.queues.events if event.kind == "beat"]
    assert {"slots": 4, "running": 2} in beats
    assert beats[-1] == {"slots": 4, "running": 0}
    assert len(beats) == 1 + int(world.time.now // 5)


def test_events_that_cannot_be_sent_stop_no_work(tmp_path: Path) -> None:
    world = World(tmp_path, 5)
    world.queues.refuse["send"] = refusal(Throttled, "RequestThrottled")
    assert world.work() == ["idle"]
    assert world.results() == world.jobs
