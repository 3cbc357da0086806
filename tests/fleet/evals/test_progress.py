"""How far a run is, by the facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.aws.prices import Price
from fleet.evals.documents import WorkerEvent
from fleet.evals.progress import (
    EvalTally,
    RunTally,
    WorkerFacts,
    WorkerPhase,
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


FIFTY = (Price("c7i.large", "on-demand", 0.5),)
LOST = a_worker("b", WorkerPhase.LOST, why="spot reclaim")


def an_event(kind: str, **changes: Any) -> WorkerEvent:
    return WorkerEvent.model_validate({"kind": kind, "worker": "a", "instance": "i-a", "at": 0.0, **changes})


@pytest.mark.fault("duplicate-delivery")
def test_a_job_done_twice_counts_once() -> None:
    """Queues deliver at least once."""
    tally = a_tally()
    for _ in range(2):
        tally.hear(an_event("job_done", eval_id="e", job="j0", detail={"samples": 2, "errors": 1, "tokens": 7}))
    assert tally.evals["e"].samples_done == 2


def test_model_calls_are_counted_where_they_are_priced_once_for_each_time_they_were_paid() -> None:
    """A job that two workers finished has been paid for twice."""
    tally = a_tally()
    for worker in "ab":
        tally.hear(an_event("job_done", worker=worker, eval_id="e", job="j0", detail={"samples": 2, "cost": 0.25}))
    progress = snapshot(tally, [a_worker("a"), a_worker("b")], prices=FIFTY, seconds=60)
    assert progress.whole_cost == 1.5
    assert progress.line().endswith("$1.00, models $0.50")
    assert snapshot(tally, [], prices=(), seconds=60).whole_cost is None


PRICES = (Price("a", "spot", 0.25), Price("b", "spot", 0.5), Price("a", "on-demand", 1.0), Price("b", "on-demand", 2.0))


@pytest.mark.parametrize(
    ("kind", "market", "cost"), [("a", "spot", 0.25), ("b", "spot", 0.5), ("b", "on-demand", 2.0), ("", "", 2.0)]
)
def test_each_instance_costs_what_it_is_and_the_dearest_where_nobody_said(kind: str, market: str, cost: float) -> None:
    """Spot falls back to on-demand, and a type to the next: a limit in dollars must hold all the same."""
    worker = a_worker("a", instance_type=kind, market=market)
    assert snapshot(a_tally(), [worker, worker], prices=PRICES, seconds=60).cost == 2 * cost


def test_a_cost_is_unknown_where_the_price_of_one_that_ran_is() -> None:
    prices = (*PRICES, Price("c", "spot", None))
    a, c = a_worker("a", instance_type="a", market="spot"), a_worker("c", instance_type="c", market="spot")
    assert snapshot(a_tally(), [a], prices=prices, seconds=60).cost == 0.25
    assert snapshot(a_tally(), [a, c], prices=prices, seconds=60).cost is None
    assert snapshot(a_tally(), [a, a_worker("b")], prices=prices, seconds=60).cost is None
    assert snapshot(a_tally(), [a, replace(c, live_seconds=0)], prices=prices, seconds=60).cost == 0.25


def test_a_worker_s_last_word_says_why_it_ended() -> None:
    tally = a_tally()
    tally.hear(an_event("ended", detail={"reason": "interrupted", "why": "a spot notice came"}))
    assert tally.workers["a"].reason == "interrupted"


def test_the_table_says_why_a_worker_ended_before_its_work_was_done() -> None:
    tally = a_tally()
    for worker, reason in (("a", "interrupted"), ("b", "idle")):
        tally.hear(an_event("ended", worker=worker, detail={"reason": reason}))
    ended = [a_worker(worker, WorkerPhase.ENDED, why=f"the state of {worker}") for worker in "ab"]
    rows = snapshot(tally, [*ended, LOST], prices=(), seconds=60).workers
    assert [row.why for row in rows] == ["the state of a", "", "spot reclaim"]


def test_the_table_says_what_keeps_a_worker_from_its_work_while_it_lives() -> None:
    tally = a_tally()
    for worker, kind, detail in (
        ("a", "host", {"taking": False, "why": "1.0 GiB of 100.0 GiB free in /d"}),
        ("b", "host", {"taking": False, "why": "it was so once"}),
        ("b", "host", {"taking": True, "why": ""}),
        ("c", "notice", {"kind": "rebalance", "at": "2026-01-01T00:00:00Z", "heeded": False}),
        ("d", "host", {"taking": False, "why": "until its jobs were done"}),
    ):
        tally.hear(an_event(kind, worker=worker, detail=detail))
    alive = [a_worker(worker, why="the state's message") for worker in "abc"]
    rows = snapshot(tally, [*alive, a_worker("d", WorkerPhase.ENDED)], prices=(), seconds=60).workers
    assert [row.why for row in rows] == [
        "takes no jobs: 1.0 GiB of 100.0 GiB free in /d",
        "",
        "EC2 announced: rebalance at 2026-01-01T00:00:00Z",
        "",
    ]


def test_jobs_that_went_back_to_the_queue_are_counted() -> None:
    tally = a_tally()
    for worker in "ab":
        tally.hear(an_event("given_back", worker=worker, detail={"jobs": ["j0", "j1"]}))
    line = snapshot(tally, [a_worker("a"), a_worker("b")], prices=(), seconds=60).line()
    assert line == "0/20 samples, 2 of 2 instances up, 4 jobs given back, cost unknown"


def test_a_snapshot_says_all_in_one_line() -> None:
    tally = a_tally(done=4, failed=1)
    tally.hear(an_event("job_done", eval_id="e", job="j0", detail={"samples": 2, "errors": 1}))
    tally.hear(an_event("rate_limited", detail={"times": 3}))
    tally.hear(an_event("beat", detail={"slots": 4, "running": 2}))
    workers = [a_worker("a"), LOST]
    progress = snapshot(tally, workers, prices=FIFTY, seconds=60)
    assert progress.line() == (
        "8/20 samples, 1 of 2 instances up, 2 failed for good, 1 with errors, rate-limited 3 times, $1.00"
    )
    assert progress.fraction == 0.5
    assert [row.slots for row in progress.workers] == ["2/4", ""]
    assert progress.workers[1].why == "spot reclaim"
    assert snapshot(tally, workers, prices=(), seconds=60).line().endswith("cost unknown")


@pytest.mark.fault("fewer-instances")
def test_instances_that_never_came_are_not_counted_as_some_that_ended() -> None:
    refused = a_worker("b", WorkerPhase.LOST, instance=None, why="no capacity in us-east-1")
    progress = snapshot(a_tally(), [a_worker("a", WorkerPhase.ENDED), refused], prices=(), seconds=60)
    assert progress.launched == 1
    assert "1 instances, all ended" in progress.line()


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


def test_jobs_are_counted_once_whatever_was_said_of_them() -> None:
    """A job that failed and has a result all the same, and one that isn't this eval's."""
    tally = a_tally(jobs=5, done=2, failed=1)
    tally.hear(an_event("job_done", eval_id="e", job="another's"))
    tally.hear(an_event("job_done", eval_id="e", job="j2"))
    one = tally.evals["e"]
    assert (one.settled, tally.open_jobs, one.open_jobs) == (3, 2, ["j3", "j4"])
