"""What the controller does next, by the facts alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.progress import RunTally, WorkerFacts, WorkerPhase, WorkerTally
from fleet.evals.steps import KEPT, Finished, GoOn, Limits, Spent, Step, Stop, TopUp, ends_soon, next_step
from tests.fleet.evals.test_progress import LOST, a_tally, a_worker

AGAIN = "Results are kept; the same request tries the failed jobs again, once their cause is mended"


def having_worked(tally: RunTally, *names: str) -> RunTally:
    tally.workers.update({name: WorkerTally(jobs=1) for name in names})
    return tally


def having_said(tally: RunTally, **reasons: str) -> RunTally:
    for name, reason in reasons.items():
        tally.workers.setdefault(name, WorkerTally()).reason = reason
    return tally


NO_CAPACITY = a_worker("new", WorkerPhase.LOST, instance=None, why="no capacity: t3.micro, us-east-1a")
ROWS: list[tuple[str, RunTally, list[WorkerFacts], int, Step]] = [
    ("all done", a_tally(done=10), [a_worker("a")], 0, Finished()),
    ("all done or failed", a_tally(10, done=9, failed=1), [a_worker("a")], 0, Finished()),
    ("no jobs at all", a_tally(0), [], 0, Finished()),
    ("work in hand", a_tally(done=3), [a_worker("a")], 0, GoOn()),
    ("still launching", a_tally(), [a_worker("a", WorkerPhase.LAUNCHING)], 0, GoOn()),
    ("nobody launches yet", a_tally(), [a_worker("a", WorkerPhase.LAUNCHING, age_seconds=899)], 0, GoOn()),
    (
        "nobody launches",
        a_tally(),
        [a_worker("a", WorkerPhase.LAUNCHING, age_seconds=901), LOST],
        0,
        Stop(
            "no instance was launched within 15 minutes: is a worker of the pool running, and not paused? " + KEPT,
            unlaunched="a",
        ),
    ),
    (
        "one of two is not launched",
        a_tally(),
        [a_worker("a"), a_worker("b", WorkerPhase.LAUNCHING, age_seconds=9e3)],
        0,
        GoOn(),
    ),
    (
        "no worker was ever asked for",
        a_tally(),
        [],
        0,
        Stop("no instance is left for 10 open jobs: no reason given. " + KEPT),
    ),
    ("one lost that had worked", having_worked(a_tally(done=2), "b"), [a_worker("a"), LOST], 0, TopUp(1)),
    ("one lost that never worked", a_tally(done=2), [a_worker("a"), LOST], 0, GoOn()),
    ("already replaced", having_worked(a_tally(done=2), "b"), [a_worker("a"), LOST, a_worker("c")], 1, GoOn()),
    ("fewer open jobs than instances", having_worked(a_tally(done=9), "b"), [a_worker("a"), LOST], 0, GoOn()),
    (
        "all lost, none had worked",
        a_tally(),
        [LOST, a_worker("a", WorkerPhase.LOST, why="no boot within 900 s")],
        0,
        Stop("no instance is left for 10 open jobs: no boot within 900 s; spot reclaim. " + KEPT),
    ),
    (
        "there is no capacity in place of a lost one, and another is left",
        having_worked(a_tally(done=2), "b"),
        [LOST, a_worker("a"), NO_CAPACITY],
        1,
        GoOn(),
    ),
    (
        "there is none in place of the last one",
        having_worked(a_tally(done=2), "a", "b", "c", "d"),
        [*(a_worker(name, WorkerPhase.LOST, why=f"EC2 took i-{name}") for name in "abcd"), NO_CAPACITY],
        4,
        Stop(
            "no instance is left for 8 open jobs: no capacity: t3.micro, us-east-1a; EC2 took i-d; EC2 took i-c. "
            + KEPT
        ),
    ),
    (
        "workers ended with work left",
        a_tally(done=4),
        [a_worker("a", WorkerPhase.ENDED)],
        0,
        Stop("no instance is left for 6 open jobs: no reason given. " + KEPT),
    ),
    (
        "the last holder is lost with jobs, and the others had been let go",
        having_said(a_tally(done=4), a="idle"),
        [LOST, a_worker("a", WorkerPhase.ENDED)],
        0,
        TopUp(count=1),
    ),
    (
        "the one launched for them finds none either",
        having_said(a_tally(done=4), a="idle", c="idle"),
        [LOST, a_worker("a", WorkerPhase.ENDED), a_worker("c", WorkerPhase.ENDED)],
        1,
        Stop("no instance is left for 6 open jobs: spot reclaim. " + KEPT),
    ),
    (
        "every first job fails",
        a_tally(failed=3),
        [a_worker("a")],
        0,
        Stop(f"3 of 10 jobs failed for good: TaskBroken: no such thing (3 times). {AGAIN}"),
    ),
    (
        "every job has failed already",
        a_tally(4, failed=4),
        [a_worker("a")],
        0,
        Stop(f"4 of 4 jobs failed for good: TaskBroken: no such thing (4 times). {AGAIN}"),
    ),
    (
        "more than a fifth fail",
        a_tally(done=4, failed=3),
        [a_worker("a")],
        0,
        Stop(f"3 of 10 jobs failed for good: TaskBroken: no such thing (3 times). {AGAIN}"),
    ),
    ("a fifth fail", a_tally(20, done=4, failed=4), [a_worker("a")], 0, GoOn()),
    (
        "one was interrupted before it had worked",
        having_said(a_tally(done=2), b="interrupted"),
        [a_worker("a"), a_worker("b", WorkerPhase.ENDED)],
        0,
        TopUp(1),
    ),
    (
        "EC2 took one as it booted, without a notice",
        a_tally(done=2),
        [a_worker("a"), a_worker("b", WorkerPhase.LOST, interrupted=True)],
        0,
        TopUp(1),
    ),
    (
        "one's host went bad, which its flow run shows as a failure",
        having_said(a_tally(done=2), b="host"),
        [a_worker("a"), LOST],
        0,
        TopUp(1),
    ),
    (
        "the only one was interrupted",
        having_said(a_tally(done=2), a="interrupted"),
        [a_worker("a", WorkerPhase.ENDED)],
        0,
        TopUp(1),
    ),
    (
        "one ended for want of jobs, one was told to stop",
        having_said(having_worked(a_tally(done=2), "b", "c"), b="idle", c="stopped"),
        [a_worker("a"), a_worker("b", WorkerPhase.ENDED), a_worker("c", WorkerPhase.STOPPED)],
        0,
        GoOn(),
    ),
]


@pytest.mark.parametrize(
    ("tally", "workers", "replaced", "step"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
@pytest.mark.fault("instance-dies", "failing-jobs", "no-workers")
def test_the_next_step_follows_the_failure_rules(
    tally: RunTally, workers: list[WorkerFacts], replaced: int, step: Step
) -> None:
    assert next_step(tally, workers, replaced=replaced) == step


@given(
    phases=st.lists(st.sampled_from(list(WorkerPhase)), min_size=1, max_size=6),
    worked=st.sets(st.integers(0, 5)),
    interrupted=st.sets(st.integers(0, 5)),
    replaced=st.integers(0, 8),
    done=st.integers(0, 9),
)
@pytest.mark.fault("instance-dies")
def test_a_fleet_never_grows_past_twice_its_first_size_but_for_interruptions(
    phases: list[WorkerPhase], worked: set[int], interrupted: set[int], replaced: int, done: int
) -> None:
    """Instances that die as fast as they are replaced must not become an endless bill."""
    workers = [a_worker(str(number), phase) for number, phase in enumerate(phases)]
    replaced = min(replaced, len(workers) // 2)
    tally = having_worked(a_tally(done=done), *[str(number) for number in worked])
    having_said(tally, **{str(number): "interrupted" for number in interrupted})
    step = next_step(tally, workers, replaced=replaced)
    if isinstance(step, TopUp):
        first = len(workers) - replaced
        in_vain = interrupted - worked
        assert len(workers) + step.count <= 2 * first + len(interrupted)
        assert worked or len(workers) + step.count <= 2 * first + min(len(in_vain), first)
        assert sum(worker.phase.alive for worker in workers) + step.count <= 10 - done


@pytest.mark.fault("instance-dies")
def test_interruptions_are_replaced_for_as_long_as_jobs_get_done() -> None:
    """A long run on spot capacity: the fleet has two instances, and EC2 takes back one after another."""
    workers = [a_worker("0"), a_worker("1")]
    tally = a_tally(jobs=100)

    def interrupt(number: int, *, done: bool) -> Step:
        """EC2 takes an instance back, after a job or before its first; what is launched then, if anything."""
        name = str(number)
        workers[number] = a_worker(name, WorkerPhase.ENDED)
        having_said(having_worked(tally, name) if done else tally, **{name: "interrupted"})
        step = next_step(tally, workers, replaced=len(workers) - 2)
        if isinstance(step, TopUp):
            workers.extend(a_worker(str(len(workers) + more)) for more in range(step.count))
        return step

    assert [interrupt(number, done=True) for number in range(10)] == [TopUp(1)] * 10
    assert [interrupt(number, done=False) for number in range(10, 12)] == [TopUp(1)] * 2
    assert interrupt(12, done=False) == GoOn(), "three in a row have done nothing; one is left"
    having_worked(tally, "13")
    assert next_step(tally, workers, replaced=12) == TopUp(1), "the last one has done something"


@pytest.mark.fault("instance-dies")
def test_interruptions_leave_the_replacements_of_lost_instances_alone() -> None:
    tally = having_said(having_worked(a_tally(jobs=100), "a", "b"), a="interrupted")
    workers = [a_worker("a", WorkerPhase.ENDED), a_worker("c"), LOST]
    assert next_step(tally, workers, replaced=1) == TopUp(1)


@pytest.mark.fault("result-damaged")
@pytest.mark.parametrize(
    ("workers", "replaced", "step"),
    [
        ([a_worker("a")], 0, GoOn()),
        ([a_worker("a", WorkerPhase.ENDED)], 0, TopUp(1)),
        ([], 0, TopUp(1)),
        ([a_worker("a", WorkerPhase.ENDED), a_worker("c", WorkerPhase.LAUNCHING)], 1, GoOn()),
        (
            [a_worker("a", WorkerPhase.ENDED), NO_CAPACITY],
            1,
            Stop("no instance is left for 3 open jobs: no capacity: t3.micro, us-east-1a. " + KEPT),
        ),
    ],
    ids=["there is a worker", "all are idle and gone", "every job was done before", "one comes", "none is to be had"],
)
def test_jobs_that_are_sent_again_get_an_instance_where_none_is_left(
    workers: list[WorkerFacts], replaced: int, step: Step
) -> None:
    """Their results had turned out unusable, perhaps when all had ended for want of jobs."""
    assert next_step(having_said(a_tally(done=7), a="idle"), workers, replaced=replaced, resends=1) == step


ALL = Limits(stall_hours=4, max_cost=10, deadline_hours=24)
LIMITED: list[tuple[str, Limits, Spent, str]] = [
    ("nothing reached", ALL, Spent(hours=23.9, still_hours=3.9, cost=9.99), ""),
    ("no limits", Limits(), Spent(hours=1e6, still_hours=1e6, cost=1e6), ""),
    ("no worker was ready yet", ALL, Spent(hours=20, cost=0), ""),
    ("cost unknown", ALL, Spent(hours=1, still_hours=1, cost=None), ""),
    ("cost", ALL, Spent(cost=10), "the run has cost $10.00, and its max_cost is $10.00"),
    ("deadline", ALL, Spent(hours=24), "the run has had the 24 hours of its deadline_hours"),
    ("stall", ALL, Spent(hours=5, still_hours=4), "no job was finished for 4 hours"),
    ("a stall that nobody minds", Limits(stall_hours=0), Spent(hours=50, still_hours=49), ""),
]


@pytest.mark.parametrize(("limits", "spent", "why"), [row[1:] for row in LIMITED], ids=[row[0] for row in LIMITED])
@pytest.mark.fault("stall", "limit-reached")
def test_a_limit_ends_the_run_keeps_the_results_and_says_what_to_do(limits: Limits, spent: Spent, why: str) -> None:
    step = next_step(a_tally(done=3), [a_worker("a")], replaced=0, limits=limits, spent=spent)
    if not why:
        assert step == GoOn()
        return
    assert isinstance(step, Stop)
    assert step.why.startswith(f"{why}. {KEPT}")


@pytest.mark.fault("stall")
def test_a_task_that_runs_in_one_piece_may_take_its_time() -> None:
    """One job is all of it, and none is finished before the last sample."""
    tally, late = a_tally(jobs=1), Spent(still_hours=9)
    assert isinstance(next_step(tally, [a_worker("a")], replaced=0, limits=ALL, spent=late), Stop)
    tally.evals["e"].whole = True
    assert next_step(tally, [a_worker("a")], replaced=0, limits=ALL, spent=late) == GoOn()


def test_a_run_that_has_everything_is_over_whatever_it_cost() -> None:
    step = next_step(a_tally(done=10), [a_worker("a")], replaced=0, limits=ALL, spent=Spent(30, 30, 30))
    assert step == Finished()


@pytest.mark.fault("limit-reached")
def test_no_instance_is_launched_by_a_run_that_has_reached_a_limit() -> None:
    tally = having_worked(a_tally(done=2), "b")
    assert next_step(tally, [a_worker("a"), LOST], replaced=0) == TopUp(1)
    assert isinstance(next_step(tally, [a_worker("a"), LOST], replaced=0, limits=ALL, spent=Spent(cost=11)), Stop)


def test_a_run_ends_soon_once_each_open_job_has_a_slot() -> None:
    tally = a_tally(jobs=10, done=6)
    assert not ends_soon(tally), "nobody has said how many slots there are"
    tally.workers.update({"a": WorkerTally(slots=2), "b": WorkerTally(slots=1)})
    assert not ends_soon(tally)
    tally.workers["b"].slots = 2
    assert ends_soon(tally)
    assert not ends_soon(a_tally(done=10))
