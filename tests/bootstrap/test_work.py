"""The failure rules of a worker, row by row, on a clock that no test waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bootstrap.runners import JobCrashed
from bootstrap.slots import Slots
from bootstrap.work import POLL_SECONDS, QUIET_SECONDS, SILENT_SECONDS, Work
from fleet.aws.failures import Denied, Throttled
from fleet.aws.queues import Depth
from fleet.evals.documents import JobFailure, JobMessage
from fleet.evals.forecast import DOUBLE_EVERY
from tests.bootstrap.world import EVAL, LAYOUT, WORK, Script, World


def crash(kind: str, why: str = "boom") -> JobCrashed:
    return JobCrashed(kind=kind, why=why)


def refusal(kind: type[Throttled] | type[Denied], code: str) -> Throttled | Denied:
    return kind(service="s3", operation="PutObject", code=code, target="s3://bucket/key", why="")


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


def test_slots_in_full_use_by_long_jobs_double_with_time(tmp_path: Path) -> None:
    world = World(tmp_path, 20, slots=4)
    world.slots = Slots(most=16, now=4)
    world.scripts = {job: Script(seconds=1000) for job in world.jobs}
    seen: list[int] = []
    for at in (DOUBLE_EVERY - 1, DOUBLE_EVERY + 1, 2 * DOUBLE_EVERY + 1, 3 * DOUBLE_EVERY + 1):
        world.at(at, lambda: seen.append(world.workers[0].running))
    world.work()
    assert seen == [4, 8, 16, 16]


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


@pytest.mark.fault("job-fails")
def test_a_failed_job_is_recorded_and_comes_back_with_its_count(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(crashes=[crash("ConnectError")])
    world.work()
    record = JobFailure.read(world.objects.held[LAYOUT.failure(EVAL, world.jobs[0], 1)])
    assert (record.attempt, record.final, record.kind, record.why) == (1, False, "ConnectError", "boom")
    assert world.results() == world.jobs
    assert world.workers[0].outcomes == {"again": 1, "done": 1}
    started = [event.detail["failures"] for event in world.queues.events if event.kind == "job_started"]
    assert started == [0, 1]


@pytest.mark.fault("job-fails")
def test_a_job_that_keeps_failing_is_given_up_and_its_message_goes(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(crashes=[crash("ConnectError") for _ in range(9)])
    world.work()
    records = [JobFailure.read(world.objects.held[LAYOUT.failure(EVAL, world.jobs[0], n)]) for n in (1, 2, 3)]
    assert [record.final for record in records] == [False, False, True]
    assert world.queues.held == []
    assert world.results() == []
    assert [event.detail["final"] for event in world.queues.events if event.kind == "job_failed"] == [
        False,
        False,
        True,
    ]


@pytest.mark.fault("job-fails")
def test_a_kind_that_no_second_try_can_mend_is_final_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(crashes=[crash("SampleChanged")])
    world.work()
    assert world.workers[0].outcomes == {"failed": 1}
    assert JobFailure.read(world.objects.held[LAYOUT.failure(EVAL, world.jobs[0], 1)]).final


@pytest.mark.fault("job-fails")
def test_one_failing_job_leaves_the_others_alone(tmp_path: Path) -> None:
    world = World(tmp_path, 12)
    world.scripts[world.jobs[5]] = Script(crashes=[crash("SampleChanged")])
    world.work()
    assert world.results() == [job for job in world.jobs if job != world.jobs[5]]


def test_rate_limits_halve_the_slots_once_and_are_told(tmp_path: Path) -> None:
    world = World(tmp_path, 8, slots=8)
    for job in world.jobs:
        world.scripts[job] = Script(rate_limited=3)
    world.work()
    assert world.workers[0].slots.now == 4
    told = [event for event in world.queues.events if event.kind == "rate_limited"]
    assert len(told) == 8
    assert told[-1].detail == {"times": 3, "slots": 4}


@pytest.mark.fault("rate-limit")
def test_a_job_that_fails_by_a_rate_limit_halves_the_slots_too(tmp_path: Path) -> None:
    world = World(tmp_path, 1, slots=8)
    world.scripts[world.jobs[0]] = Script(crashes=[crash("RateLimitError")])
    world.work()
    assert world.workers[0].slots.now == 4


@pytest.mark.fault("rate-limit")
def test_refused_calls_of_jobs_in_flight_cut_the_slots_and_quiet_rounds_win_them_back(tmp_path: Path) -> None:
    """Long jobs: nobody waits for their end to hear of it. They go on, and what they make room for isn't taken."""
    world = World(tmp_path, 40, slots=16)
    world.slots = Slots(most=16, now=16)
    world.scripts = {job: Script(seconds=40) for job in world.jobs}
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append((world.workers[0].running, world.workers[0].slots.now))

    world.at(10, lambda: world.workers[0].refused(3.0))
    world.at(11, look)
    world.at(50, look)
    world.at(1, lambda: setattr(world.workers[0], "draw", lambda: 0.5))
    for _ in range(8):
        world.at(60, lambda: world.workers[0].refused(15.0))
    world.at(79, look)
    world.work()
    assert seen[:2] == [(16, 8), (8, 8)]
    assert seen[2][1] == 2, "half of the time was waited: what is left of eight, less a fifth of them"
    assert world.workers[0].slots.now > 2
    assert any("rate limited: 16 slots become 8" in line for line in world.said)


@pytest.mark.fault("rate-limit")
def test_a_job_that_waits_for_its_next_attempt_takes_no_slots(tmp_path: Path) -> None:
    world = World(tmp_path, 4)
    world.slots = Slots(most=8, now=4, level=4.0, level_known=True)
    world.scripts = {job: Script(seconds=100) for job in world.jobs[1:]}
    world.scripts[world.jobs[0]] = Script(crashes=[crash("RateLimitError")])
    seen: list[int] = []
    world.at(50, lambda: seen.append(world.workers[0].slots.now))
    world.work()
    assert seen == [4]


def test_a_round_takes_its_time_however_long_its_beats_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat is as long as SQS takes for its report."""
    world = World(tmp_path, 4)
    world.slots = Slots(most=8, now=4, level=4.0, level_known=True)
    world.scripts = {job: Script(seconds=100) for job in world.jobs}
    seen: list[int] = []

    async def slowly(work: Work) -> None:
        send = work.deliveries.reports.send

        async def slow(kind: Any, *args: Any, **detail: Any) -> None:
            await world.time.sleep(20 if kind == "beat" else 0)
            await send(kind, *args, **detail)

        monkeypatch.setattr(work.deliveries.reports, "send", slow)

    world.beside = [slowly]
    world.at(10, lambda: world.workers[0].refused(30.0))
    world.at(60, lambda: seen.append(world.workers[0].slots.now))
    world.work()
    assert seen != [4], "two beats of 25 s are a round"


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


def test_a_message_that_means_nothing_here_is_dropped_and_told(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.queues.send(WORK, ['{"version": 99}', JobMessage(eval_id=EVAL, job="999999-00000000").write()])
    world.work()
    assert world.queues.held == []
    assert world.results() == world.jobs
    whys = [str(event.detail["why"]) for event in world.queues.events if event.kind == "job_failed"]
    assert "its version is 99" in whys[0]
    assert "has no job 999999-00000000" in whys[1]


@pytest.mark.fault("given-back")
def test_a_store_that_does_not_answer_gives_the_job_back_and_counts_no_attempt(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.objects.refuse["exists"] = refusal(Throttled, "SlowDown")
    world.at(30, world.objects.refuse.clear)
    world.work()
    assert world.results() == world.jobs
    assert len([line for line in world.said if line.startswith("a job is given back")]) == 3
    assert [event.detail["failures"] for event in world.queues.events if event.kind == "job_started"] == [0]
    assert not [key for key in world.objects.held if key.startswith(LAYOUT.failures(EVAL))]


def test_a_worker_that_may_not_store_results_fails_and_holds_nothing_back(tmp_path: Path) -> None:
    world = World(tmp_path, 3)
    world.objects.refuse["put_new"] = refusal(Denied, "AccessDenied")
    with pytest.raises(BaseExceptionGroup) as caught:
        world.work()
    assert caught.group_contains(Denied)
    assert all(held.visible_at <= world.time.now for held in world.queues.held)


def test_a_bug_of_ours_keeps_its_traceback_and_holds_nothing_back(tmp_path: Path) -> None:
    world = World(tmp_path, 3)
    world.scripts[world.jobs[0]] = Script(crashes=[ZeroDivisionError()])  # type: ignore[list-item]
    with pytest.raises(BaseExceptionGroup) as caught:
        world.work()
    assert caught.group_contains(ZeroDivisionError)
    assert all(held.visible_at <= world.time.now for held in world.queues.held)


def test_a_secret_that_an_error_quotes_is_in_no_record_event_or_log(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(
        crashes=[crash("AuthenticationError", "bad key sk-very-secret") for _ in "123"]
    )
    world.work()
    seen = str(world.objects.held) + str(world.queues.events) + str(world.said)
    assert "bad key <OPENAI_API_KEY>" in seen
    assert "sk-very-secret" not in seen


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
