"""The failure rules of a worker, row by row, on a clock that no test waits for. Those of one job's delivery: `test_delivery.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.aws.failures import Denied, Throttled
from fleet.evals.documents import JobFailure, JobMessage
from tests.bootstrap.mishaps import crash, refusal
from tests.bootstrap.world import EVAL, LAYOUT, WORK, Script, World


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
