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
    Pod,
    PodStatus,
    SampleCounts,
    TaskProgress,
)
from fleet.hawk.following import (
    FAILED_S,
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
CONFLICT = HawkConflict(address="https://h", asked="a launch", why="409: Could not clear finished job")
LOST = HawkUnreachable(address="https://h", asked="a launch", why="no answer")
FAULT = HawkFailed(address="https://h", asked="a launch", why="500: helm failed")


def seen_as(status: str, live: str = "", queued: str = "", runner: str = "", logs: Sequence[str] = ()) -> Look:
    """`runner`: the phase of its pod, where it has one. `logs`: the state of each log."""
    admission = Admission(state="queued", message=queued) if queued else None
    pods = PodStatus(pods=[Pod(phase=runner, component="runner")] if runner else [])
    tasks = [TaskProgress(task_name="t", log_file=f"{index}.eval", eval_status=log) for index, log in enumerate(logs)]
    job = JobStatus(status=status, admission=admission, pod_status=pods)
    return Look(job, EvalSetStatus(status=live or status, tasks=tasks))


@dataclass(frozen=True)
class Row:
    """Looks of a run, one each LOOK_S, and the kind of step after each; each launch succeeds."""

    name: str
    looks: Sequence[Look]
    steps: Sequence[type]


def for_a(seconds: float) -> int:
    """So many looks."""
    return int(seconds / LOOK_S) + 1


MOST, LAST = for_a(UNSURE_S), for_a(FAILED_S)


PENDING, RUNNING, COMPLETE, DELETED = map(seen_as, ("pending", "running", "complete", "deleted"))
QUEUED = seen_as("pending", queued="no quota")
FAILED, LOST_POD = seen_as("failed"), seen_as("failed", runner="Failed")
ROWS = [
    Row("a new one", [UNKNOWN, PENDING, RUNNING, COMPLETE], [Submit, Follow, Follow, Collect]),
    Row("one that is under way", [RUNNING, COMPLETE], [Follow, Collect]),
    Row("one that waits from before", [PENDING, RUNNING, FAILED], [Follow, Follow, Collect]),
    Row("one that failed a moment ago", [LOST_POD, LOST_POD], [Follow, Follow]),
    Row("one that is over", [COMPLETE], [Collect]),
    Row("one that failed", [FAILED], [Collect]),
    Row("one that was deleted before", [DELETED, PENDING], [Submit, Follow]),
    Row("one that is deleted now", [RUNNING, DELETED], [Follow, Ended]),
    Row("pending after running", [RUNNING, PENDING, PENDING, COMPLETE], [Follow, Follow, Follow, Collect]),
    Row("pending after running, and its logs are finished", [RUNNING, seen_as("pending", "complete")], [Follow, Collect]),
    Row("pending after running for long", [RUNNING, *[PENDING] * (MOST + 1)], [*[Follow] * (MOST + 1), Collect]),
    Row("back in the queue", [RUNNING, *[seen_as("pending", queued="no quota")] * 500], [Follow] * 501),
    Row("in the queue for hours", [UNKNOWN, *[QUEUED] * 3_000], [Submit, *[Follow] * 3_000]),
    Row("its pod waits for hours", [UNKNOWN, *[seen_as("pending", runner="Pending")] * 3_000], [Submit, *[Follow] * 3_000]),
    Row("pending with nothing there, from before", [PENDING] * (MOST + 1), [*[Follow] * MOST, Collect]),
    Row("pending with nothing there, launched", [UNKNOWN, *[PENDING] * (MOST + 1)], [Submit, *[Follow] * MOST, Collect]),
    Row("out of the queue with nothing there", [QUEUED, *[PENDING] * (MOST + 1)], [*[Follow] * (MOST + 1), Collect]),
    Row("a state of a newer Hawk with nothing there", [seen_as("hibernating")] * (MOST + 1), [*[Follow] * MOST, Collect]),
    Row("failed, and started again", [RUNNING, *[LOST_POD] * 17, RUNNING, COMPLETE], [*[Follow] * 19, Collect]),
    Row("failed, and not started again", [RUNNING, *[LOST_POD] * (LAST + 1)], [*[Follow] * (LAST + 1), Collect]),
    Row("failed with every log a success", [RUNNING, seen_as("failed", runner="Failed", logs=["success"])], [Follow, Collect]),
    Row("failed with a log that isn't", [RUNNING, seen_as("failed", runner="Failed", logs=["error"])], [Follow, Follow]),
    Row("failed with a runner that is there", [seen_as("failed", runner="Running")] * 500, [Follow] * 500),
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


def follow(
    seen: Seen, looks: Sequence[Look], now: float = 0.0, launches: Sequence[HawkError | None] = ()
) -> tuple[Seen, list[Step]]:
    """Each look's step, as a flow takes them; the launches end as said, and the last of those again. Nothing said: they succeed."""
    steps: list[Step] = []
    left = list(launches) or [None]
    for index, look in enumerate(looks):
        seen, step = next_step(seen, look, now + index * LOOK_S)
        steps.append(step)
        again = after_collection(seen, 1, whole=False) if launches and isinstance(step, Collect) else None
        if again:
            steps.append(again)
        if isinstance(steps[-1], Submit | Resume):
            seen, then = after_launch(seen, now + index * LOOK_S, left.pop(0) if len(left) > 1 else left[0])
            if isinstance(then, Ended):
                steps.append(then)
        if isinstance(steps[-1], Ended) or (launches and isinstance(steps[-1], Collect)):
            break
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


@pytest.mark.parametrize("alive", [RUNNING, QUEUED, seen_as("stuck"), seen_as("pending", runner="Pending")])
@pytest.mark.parametrize("error", [CONFLICT, LOST])
def test_a_launch_without_a_good_answer_counts_once_it_is_seen_alive(error: HawkError, alive: Look) -> None:
    """Ours or our own from before: nothing is posted again, and its end is the result."""
    seen, _ = after_launch(Seen(ID), 0.0, error)
    assert not seen.launched
    seen, steps = follow(seen, [PENDING, alive, COMPLETE])
    assert [type(step) for step in steps] == [Follow, Follow, Collect]
    assert (seen.launched, seen.refused) == (True, None)


@pytest.mark.parametrize("error", [CONFLICT, LOST, FAULT])
@pytest.mark.parametrize("over", [COMPLETE, FAILED, PENDING, seen_as("pending", "complete"), seen_as("importing")])
def test_a_resume_that_does_not_take_place_is_made_again_now_and_then_and_ends_in_hawks_words(
    error: HawkError, over: Look
) -> None:
    """It was seen at work by this run, and what Hawk says of it is the run before. Nothing is posted in a hot loop."""
    _, steps = follow(Seen(ID), [RUNNING, *[over] * 500], launches=[error])
    first = [type(step) for step in steps].index(Collect)
    assert [type(step) for step in steps[first:][:4]] == [Collect, Resume, Follow, Follow]
    assert 3 < sum(isinstance(step, Resume) for step in steps) <= PATIENCE_S / STALE_S + 2
    assert isinstance(steps[-1], Ended)
    assert error.why in steps[-1].why


def test_a_resume_that_succeeds_in_the_end_is_the_only_one_that_counts() -> None:
    seen, steps = follow(Seen(ID), [COMPLETE] * 40, launches=[CONFLICT, None])
    assert sum(isinstance(step, Resume) for step in steps) == 2
    assert seen.launched
    assert isinstance(steps[-1], Collect)


def test_a_launch_without_an_answer_is_looked_for_before_it_is_tried_again() -> None:
    seen, step = next_step(Seen(ID), UNKNOWN, 0.0)
    assert step == Submit()
    seen, step = after_launch(seen, 0.0, LOST)
    assert isinstance(step, Follow)
    assert isinstance(next_step(seen, RUNNING, 5.0)[1], Follow)
    assert next_step(seen, UNKNOWN, 5.0)[1] == Submit()


def test_launches_that_fail_are_given_up_after_the_patience() -> None:
    seen, now = Seen(ID), 0.0
    while True:
        seen, step = next_step(seen, UNKNOWN, now)
        assert step == Submit()
        seen, step = after_launch(seen, now, FAULT)
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
    [
        *(UNKNOWN, SILENT, PENDING, QUEUED, RUNNING, COMPLETE, FAILED, LOST_POD, DELETED),
        *(seen_as("importing"), seen_as("stuck"), seen_as("pending", "complete"), seen_as("hibernating")),
        Look(JobStatus(status="pending")),
    ]
)
LAUNCHES = st.lists(st.sampled_from([None, CONFLICT, LOST, FAULT]), min_size=1, max_size=5)


@given(st.lists(LOOKS, max_size=40), LAUNCHES)
def test_nothing_is_posted_after_a_launch_that_was_good(looks: list[Look], launches: list[HawkError | None]) -> None:
    """Whatever Hawk says in which order."""
    tried = launches[: launches.index(None)] if None in launches else launches * 40
    _, steps = follow(Seen(ID), looks, launches=launches)
    assert sum(isinstance(step, Submit | Resume) for step in steps) <= len(tried) + 1


@given(st.lists(LOOKS, max_size=20), LOOKS, LAUNCHES)
def test_what_does_not_change_is_followed_for_ever_only_in_the_queue_or_with_a_runner_that_is_there(
    looks: list[Look], last: Look, launches: list[HawkError | None]
) -> None:
    most = for_a(PATIENCE_S + UNSEEN_S + 2 * UNSURE_S + FAILED_S + STALE_S)
    _, steps = follow(Seen(ID), [*looks, *[last] * most], launches=launches)
    there = last.job is not None and (last.job.at_work or last.job.queued)
    assert isinstance(steps[-1], Collect | Ended) or there
