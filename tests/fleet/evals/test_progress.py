"""What the controller does next, by the facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.documents import WorkerEvent
from fleet.evals.progress import (
    EvalTally,
    Finished,
    GoOn,
    RunTally,
    Step,
    Stop,
    TopUp,
    WorkerFacts,
    WorkerPhase,
    WorkerTally,
    next_step,
    snapshot,
    worker_phase,
)


def a_worker(name: str, phase: WorkerPhase = WorkerPhase.WORKING, **changes: Any) -> WorkerFacts:
    facts = WorkerFacts(run_id=name, name=name, phase=phase, instance=f"i-{name}", why="", live_seconds=3600)
    return replace(facts, **changes)


def a_tally(jobs: int = 10, done: int = 0, failed: int = 0) -> RunTally:
    names = [f"j{number}" for number in range(jobs)]
    tally = EvalTally(eval_id="e", task="t", model="m", jobs=dict.fromkeys(names, 2))
    tally.done = set(names[:done])
    tally.failed = dict.fromkeys(names[done : done + failed], "TaskBroken: no such thing")
    return RunTally(evals={"e": tally})


def having_worked(tally: RunTally, *names: str) -> RunTally:
    tally.workers.update({name: WorkerTally(jobs=1) for name in names})
    return tally


LOST = a_worker("b", WorkerPhase.LOST, why="spot reclaim")
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
        Stop("no instance was launched within 15 minutes: is a worker of the pool running, and not paused?"),
    ),
    (
        "one of two is not launched",
        a_tally(),
        [a_worker("a"), a_worker("b", WorkerPhase.LAUNCHING, age_seconds=9e3)],
        0,
        GoOn(),
    ),
    ("no worker was ever asked for", a_tally(), [], 0, Stop("no instance is left for 10 open jobs: no reason given")),
    ("one lost that had worked", having_worked(a_tally(done=2), "b"), [a_worker("a"), LOST], 0, TopUp(1)),
    ("one lost that never worked", a_tally(done=2), [a_worker("a"), LOST], 0, GoOn()),
    ("already replaced", having_worked(a_tally(done=2), "b"), [a_worker("a"), LOST, a_worker("c")], 1, GoOn()),
    ("fewer open jobs than instances", having_worked(a_tally(done=9), "b"), [a_worker("a"), LOST], 0, GoOn()),
    (
        "all lost, none had worked",
        a_tally(),
        [LOST, a_worker("a", WorkerPhase.LOST, why="no boot within 900 s")],
        0,
        Stop("no instance is left for 10 open jobs: spot reclaim; no boot within 900 s"),
    ),
    (
        "workers ended with work left",
        a_tally(done=4),
        [a_worker("a", WorkerPhase.ENDED)],
        0,
        Stop("no instance is left for 6 open jobs: no reason given"),
    ),
    (
        "every first job fails",
        a_tally(failed=3),
        [a_worker("a")],
        0,
        Stop("3 of 10 jobs failed for good: TaskBroken: no such thing (3 times)"),
    ),
    (
        "more than a fifth fail",
        a_tally(done=4, failed=3),
        [a_worker("a")],
        0,
        Stop("3 of 10 jobs failed for good: TaskBroken: no such thing (3 times)"),
    ),
    ("a fifth fail", a_tally(20, done=4, failed=4), [a_worker("a")], 0, GoOn()),
]


@pytest.mark.parametrize(
    ("tally", "workers", "replaced", "step"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_the_next_step_follows_the_failure_rules(
    tally: RunTally, workers: list[WorkerFacts], replaced: int, step: Step
) -> None:
    assert next_step(tally, workers, replaced=replaced) == step


@given(
    phases=st.lists(st.sampled_from(list(WorkerPhase)), min_size=1, max_size=6),
    worked=st.sets(st.integers(0, 5)),
    replaced=st.integers(0, 8),
    done=st.integers(0, 9),
)
def test_a_fleet_never_grows_past_twice_its_first_size(
    phases: list[WorkerPhase], worked: set[int], replaced: int, done: int
) -> None:
    """Instances that die as fast as they are replaced must not become an endless bill."""
    workers = [a_worker(str(number), phase) for number, phase in enumerate(phases)]
    replaced = min(replaced, len(workers) // 2)
    tally = having_worked(a_tally(done=done), *[str(number) for number in worked])
    step = next_step(tally, workers, replaced=replaced)
    if isinstance(step, TopUp):
        assert len(workers) + step.count <= 2 * (len(workers) - replaced)
        assert sum(worker.phase.alive for worker in workers) + step.count <= 10 - done


def an_event(kind: str, **changes: Any) -> WorkerEvent:
    return WorkerEvent.model_validate({"kind": kind, "worker": "a", "instance": "i-a", "at": 0.0, **changes})


def test_a_job_done_twice_counts_once() -> None:
    """Queues deliver at least once."""
    tally = a_tally()
    for _ in range(2):
        tally.hear(an_event("job_done", eval_id="e", job="j0", detail={"samples": 2, "errors": 1, "tokens": 7}))
    assert tally.evals["e"].samples_done == 2


def test_a_snapshot_says_all_in_one_line() -> None:
    tally = a_tally(done=4, failed=1)
    tally.hear(an_event("job_done", eval_id="e", job="j0", detail={"samples": 2, "errors": 1}))
    tally.hear(an_event("rate_limited", detail={"times": 3}))
    tally.hear(an_event("beat", detail={"slots": 4, "running": 2}))
    workers = [a_worker("a"), LOST]
    progress = snapshot(tally, workers, price=0.5, seconds=60)
    assert progress.line() == (
        "8/20 samples, 1 of 2 instances up, 2 failed for good, 1 with errors, rate-limited 3 times, $1.00"
    )
    assert progress.fraction == 0.5
    assert [row.slots for row in progress.workers] == ["2/4", ""]
    assert progress.workers[1].why == "spot reclaim"
    assert snapshot(tally, workers, price=None, seconds=60).line().endswith("cost unknown")


@pytest.mark.parametrize(
    ("state", "has_instance", "phase"),
    [
        ("SCHEDULED", False, WorkerPhase.LAUNCHING),
        ("PENDING", False, WorkerPhase.LAUNCHING),
        ("PENDING", True, WorkerPhase.BOOTING),
        ("RUNNING", True, WorkerPhase.WORKING),
        ("COMPLETED", True, WorkerPhase.ENDED),
        ("CRASHED", True, WorkerPhase.LOST),
        ("FAILED", True, WorkerPhase.LOST),
        ("CANCELLING", True, WorkerPhase.STOPPED),
        ("CANCELLED", False, WorkerPhase.STOPPED),
        (None, False, WorkerPhase.LAUNCHING),
    ],
)
def test_a_phase_is_read_from_the_state(state: str | None, has_instance: bool, phase: WorkerPhase) -> None:
    assert worker_phase(state, has_instance=has_instance) is phase
