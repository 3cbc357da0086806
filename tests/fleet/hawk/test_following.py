"""What is done with an eval set, look by look: no server, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.hawk.api import (
    Admission,
    EvalSetStatus,
    HawkConflict,
    HawkError,
    HawkFailed,
    HawkUnreachable,
    JobDetails,
    JobStatus,
    SampleCounts,
    TaskProgress,
)
from fleet.hawk.following import (
    PATIENCE_S,
    STALE_S,
    UNSEEN_S,
    UNSURE_S,
    Collect,
    Ended,
    Follow,
    Look,
    Resume,
    Seen,
    Step,
    Submit,
    after_collection,
    after_launch,
    next_step,
)

ID = "my-eval-0123456789"
UNKNOWN = Look(None)
SILENT = Look(None, error=HawkUnreachable(address="https://h", asked="the status", why="no route"))
LOOK_S = 5.0


def seen_as(status: str, live: str = "", queued: str = "") -> Look:
    admission = Admission(state="queued", message=queued) if queued else None
    return Look(JobStatus(status=status, admission=admission), EvalSetStatus(status=live or status))


@dataclass(frozen=True)
class Row:
    """Looks of a run, one each LOOK_S, and the kind of step after each; each launch succeeds."""

    name: str
    looks: Sequence[Look]
    steps: Sequence[type]


def for_a(seconds: float) -> int:
    """So many looks."""
    return int(seconds / LOOK_S) + 1


MOST = for_a(UNSURE_S)


PENDING, RUNNING, COMPLETE, FAILED, DELETED = map(seen_as, ("pending", "running", "complete", "failed", "deleted"))
ROWS = [
    Row("a new one", [UNKNOWN, PENDING, RUNNING, COMPLETE], [Submit, Follow, Follow, Collect]),
    Row("one that is under way", [RUNNING, COMPLETE], [Follow, Collect]),
    Row("one that waits from before", [PENDING, RUNNING, FAILED], [Follow, Follow, Collect]),
    Row("one that is over", [COMPLETE], [Collect]),
    Row("one that failed", [FAILED], [Collect]),
    Row("one that was deleted before", [DELETED, PENDING], [Submit, Follow]),
    Row("one that is deleted now", [RUNNING, DELETED], [Follow, Ended]),
    Row("pending after running", [RUNNING, PENDING, PENDING, COMPLETE], [Follow, Follow, Follow, Collect]),
    Row("pending after running, and its logs are finished", [RUNNING, seen_as("pending", "complete")], [Follow, Collect]),
    Row("pending after running for long", [RUNNING, *[PENDING] * (MOST + 1)], [*[Follow] * (MOST + 1), Collect]),
    Row("back in the queue", [RUNNING, *[seen_as("pending", queued="no quota")] * 500], [Follow] * 501),
    Row("in the queue for hours", [UNKNOWN, *[PENDING] * 3_000], [Submit, *[Follow] * 3_000]),
    Row("over long ago, says the log, and its pods are gone", [seen_as("pending", "complete")], [Collect]),
    Row("imported", [RUNNING, seen_as("importing", "running"), seen_as("importing", "complete")], [Follow, Follow, Collect]),
    Row("stuck, and then not", [RUNNING, seen_as("stuck"), RUNNING, COMPLETE], [Follow, Follow, Follow, Collect]),
    Row("waits for capacity", [seen_as("waiting_for_capacity")] * 500, [Follow] * 500),
    Row("a state of a newer Hawk", [seen_as("hibernating"), COMPLETE], [Follow, Collect]),
    Row("silent for a while", [RUNNING, SILENT, SILENT, COMPLETE], [Follow, Follow, Follow, Collect]),
    Row("silent at first", [SILENT, UNKNOWN], [Follow, Submit]),
    Row("silent now and then", [RUNNING, SILENT] * 200, [Follow] * 400),
    Row("silent for too long", [RUNNING, *[SILENT] * (for_a(PATIENCE_S) + 1)], [*[Follow] * (for_a(PATIENCE_S) + 1), Ended]),
    Row("not shown at once", [UNKNOWN, UNKNOWN, PENDING], [Submit, Follow, Follow]),
    Row("never shown", [UNKNOWN] * (for_a(UNSEEN_S) + 2), [Submit, *[Follow] * for_a(UNSEEN_S), Ended]),
    Row("not known any more", [RUNNING, *[UNKNOWN] * (for_a(UNSEEN_S) + 1)], [*[Follow] * (for_a(UNSEEN_S) + 1), Ended]),
]  # fmt: skip


def follow(seen: Seen, looks: Sequence[Look], now: float = 0.0) -> tuple[Seen, list[Step]]:
    """Each look's step, where every launch succeeds at once."""
    steps: list[Step] = []
    for index, look in enumerate(looks):
        seen, step = next_step(seen, look, now + index * LOOK_S)
        if isinstance(step, Submit | Resume):
            seen, _ = after_launch(seen, now + index * LOOK_S)
        steps.append(step)
    return seen, steps


@pytest.mark.parametrize("row", ROWS, ids=attrgetter("name"))
def test_each_state_has_its_step(row: Row) -> None:
    _, steps = follow(Seen(ID), row.looks)
    assert [type(step) for step in steps] == list(row.steps)


def test_the_end_of_the_run_before_is_not_taken_for_this_one_s() -> None:
    """For a moment after a launch Hawk shows what was."""
    seen, (step,) = follow(Seen(ID), [COMPLETE])
    assert isinstance(step, Collect)
    seen, _ = after_launch(seen, 10.0)
    _, steps = follow(seen, [COMPLETE, COMPLETE, RUNNING, COMPLETE], 10.0)
    assert [type(step) for step in steps] == [Follow, Follow, Follow, Collect]


def test_a_run_that_was_too_short_to_be_seen_is_collected_all_the_same() -> None:
    seen, _ = after_launch(Seen(ID, known=True), 0.0)
    _, steps = follow(seen, [COMPLETE] * (for_a(STALE_S) + 1))
    assert [type(step) for step in steps] == [*[Follow] * for_a(STALE_S), Collect]


def test_old_logs_do_not_say_that_what_was_launched_again_is_over() -> None:
    seen, _ = after_launch(Seen(ID, known=True, ran=True), 0.0)
    _, steps = follow(seen, [seen_as("pending", "complete"), RUNNING, seen_as("pending", "complete")])
    assert [type(step) for step in steps] == [Follow, Follow, Collect]


@pytest.mark.parametrize(
    ("launched", "logs", "whole", "step"),
    [
        (False, 2, True, None),
        (False, 2, False, Resume()),
        (False, 0, False, Submit()),
        (True, 2, False, None),
        (True, 0, False, None),
        (True, 2, True, None),
    ],
)
def test_a_run_from_before_goes_on_once(launched: bool, logs: int, whole: bool, step: Step | None) -> None:
    assert after_collection(Seen(ID, launched=launched), logs, whole=whole) == step


def test_a_conflict_is_as_good_as_a_launch() -> None:
    """Our own from before is under way: nothing is posted again, and it is followed."""
    conflict = HawkConflict(address="https://h", asked="a launch", why="409: Launch already in progress")
    seen, _ = after_launch(Seen(ID), 0.0, conflict)
    _, steps = follow(seen, [UNKNOWN, UNKNOWN, PENDING, RUNNING, COMPLETE])
    assert [type(step) for step in steps] == [*[Follow] * 4, Collect]


def test_a_launch_without_an_answer_is_looked_for_before_it_is_tried_again() -> None:
    seen, step = next_step(Seen(ID), UNKNOWN, 0.0)
    assert step == Submit()
    seen, step = after_launch(seen, 0.0, HawkUnreachable(address="https://h", asked="a launch", why="no answer"))
    assert isinstance(step, Follow)
    assert isinstance(next_step(seen, RUNNING, 5.0)[1], Follow)
    assert next_step(seen, UNKNOWN, 5.0)[1] == Submit()


def test_launches_that_fail_are_given_up_after_the_patience() -> None:
    error: HawkError = HawkFailed(address="https://h", asked="a launch", why="500: helm failed")
    seen, now = Seen(ID), 0.0
    while True:
        seen, step = next_step(seen, UNKNOWN, now)
        assert step == Submit()
        seen, step = after_launch(seen, now, error)
        if isinstance(step, Ended):
            break
        now += LOOK_S
    assert PATIENCE_S < now <= PATIENCE_S + LOOK_S
    assert "500: helm failed" in step.why
    assert "the same request goes on" in step.why


def test_what_a_person_reads_while_it_goes_on() -> None:
    """What it waits for, why it is stuck, how far it is."""
    task = TaskProgress(task_name="t", log_file="1.eval", progress=SampleCounts(total=10, completed=3, errored=1))
    at_work = EvalSetStatus(status="running", tasks=[task], trouble_reason="OOMKilled")

    def line(job: JobStatus, progress: EvalSetStatus | None = at_work) -> str:
        step = next_step(Seen(ID), Look(job, progress), 0.0)[1]
        assert isinstance(step, Follow)
        return step.line

    queued = Admission(state="queued", message="quota is used up")
    assert line(JobStatus(status="pending")) == "Waiting for a place on Hawk's cluster"
    assert (
        line(JobStatus(status="pending", admission=queued)) == "Waiting for a place on Hawk's cluster: quota is used up"
    )
    assert line(JobStatus(status="running"), None) == "Hawk's runner starts"
    assert line(JobStatus(status="running")) == "4 of 10 samples"
    assert (
        line(JobStatus(status="running", pending_interactions=2))
        == "4 of 10 samples, 2 wait for a person on Hawk's page"
    )
    assert (
        line(JobStatus(status="waiting_for_capacity", unschedulable_sandboxes=7))
        == "4 of 10 samples, waiting for capacity of the cluster for 7 sandboxes"
    )
    stuck = line(JobStatus(status="stuck", details=JobDetails(trouble_reason="ImagePullBackOff")))
    assert stuck == "4 of 10 samples, stuck, says Hawk: ImagePullBackOff. It may recover; its page tells more"
    assert "OOMKilled" in line(JobStatus(status="stuck"))


def test_tasks_that_are_not_begun_count_and_a_task_that_was_tried_again_counts_once() -> None:
    def task(task_id: str, log: str, done: int) -> TaskProgress:
        counts = SampleCounts(total=10, completed=done)
        return TaskProgress(task_name="t", task_id=task_id, log_file=log, progress=counts)

    progress = EvalSetStatus(status="running", tasks=[task("a", "2.eval", 5), task("a", "1.eval", 9)])
    seen, step = next_step(Seen(ID, evals=2), Look(JobStatus(status="running"), progress), 0.0)
    assert isinstance(step, Follow)
    assert (step.line, step.fraction) == ("5 of 10 samples", 0.25)
    _, step = next_step(seen, SILENT, 5.0)
    assert isinstance(step, Follow)
    assert step.fraction == 0.25


LOOKS = st.sampled_from(
    [UNKNOWN, SILENT, PENDING, RUNNING, COMPLETE, FAILED, DELETED, seen_as("importing"), seen_as("stuck")]
)


@given(st.lists(LOOKS, max_size=40))
def test_nothing_is_posted_twice(looks: list[Look]) -> None:
    """Whatever Hawk says in which order."""
    _, steps = follow(Seen(ID), looks)
    assert sum(isinstance(step, Submit | Resume) for step in steps) <= 1
