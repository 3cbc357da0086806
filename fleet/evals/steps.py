"""What the controller does next, from facts alone: go on, launch more, or end the run. Nothing here calls anything.

Whatever ends a run early keeps its results, and says what a person can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.evals.progress import RunTally, WorkerFacts, WorkerPhase, WorkerTally

KEPT = "Results are kept, and the same request goes on from them"
"""What follows each reason to stop."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Look again later."""


@dataclass(frozen=True, slots=True)
class TopUp:
    """Launch this many more instances."""

    count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Every job has a result, or is one of few that failed for good."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run now, keeping what there is."""

    why: str
    unlaunched: str = ""
    """A worker's flow run, where the reason is that nobody launches what was asked for: Prefect may know why (`not_launched`)."""


Step = GoOn | TopUp | Finished | Stop


@dataclass(frozen=True, slots=True)
class Limits:
    """What a person allows a run: the fleet's options of these names."""

    stall_hours: float = 0.0
    """Hours without a finished job; 0: no limit."""
    max_cost: float | None = None
    """Dollars."""
    deadline_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used of it."""

    hours: float = 0.0
    """Since it began to launch."""
    still_hours: float | None = None
    """Since a job was finished or failed for good, before the first one since a worker was ready; None: none was ready yet."""
    cost: float | None = None
    """Dollars; None: unknown."""


FAILURE_SHARE = 0.2
"""More than this share of jobs failed for good: the rest would too (design, failure rules)."""
LAUNCH_S = 900.0
"""A pool worker looks for flow runs every few seconds, and EC2 answers in as many: nobody is there who launches."""
FIRST_JOBS = 3
"""So many failures, and not one success, say the same sooner."""
INTERRUPTED = "interrupted"
IDLE = "idle"
GIVEN_UP = frozenset({INTERRUPTED, "host"})
"""Reasons of a worker's end that say nothing against its jobs: AWS took the instance back, or the machine went bad."""


def next_step(
    tally: RunTally,
    workers: Iterable[WorkerFacts],
    *,
    replaced: int,
    resends: int = 0,
    limits: Limits = Limits(),
    spent: Spent = Spent(),
) -> Step:
    """What the controller does now.

    Args:
        tally: What is known of the jobs.
        workers: Every instance that was asked for, in the order in which it was.
        replaced: How many of them were launched later than the fleet itself.
        resends: How often jobs were sent again whose results had turned out unusable. Where nobody is left who could run them,
            each time is good for one more instance.
        limits: What a person allows.
        spent: What of that is used.
    """
    facts = list(workers)
    open_jobs = tally.open_jobs
    if why := _hopeless(tally):  # also where none is open any more: a person wants the errors, not a run that is done
        return Stop(why=why)
    if not open_jobs:
        return Finished()
    if why := _over(limits, spent) or _stalled(tally, limits, spent):
        return Stop(why=why)

    alive = sum(fact.phase.alive for fact in facts)
    first = len(facts) - replaced
    due = _due(facts, tally, first=first)
    wanted = min(due - replaced, open_jobs - alive)
    if wanted > 0:
        return TopUp(count=wanted)
    if not alive and replaced < due + max(resends, _let_go(facts[:first], tally)):
        return TopUp(count=1)
    hoped_for = [fact for fact in facts if fact.phase.alive]
    if hoped_for and all(fact.phase is WorkerPhase.LAUNCHING and fact.age_seconds > LAUNCH_S for fact in hoped_for):
        return Stop(why=not_launched(), unlaunched=hoped_for[0].run_id)
    if not alive:
        # The latest first among equals: why there is no instance in place of those that were lost.
        reasons = _most_common(fact.why for fact in reversed(facts) if fact.why) or "no reason given"
        return Stop(why=f"no instance is left for {open_jobs} open jobs: {reasons}. {KEPT}")
    return GoOn()


def ends_soon(tally: RunTally) -> bool:
    """Whether each job that is open has a slot: what the end of a run needs can be made ready."""
    slots = sum(worker.slots for worker in tally.workers.values())
    return 0 < tally.open_jobs <= slots


def not_launched(cause: str = "") -> str:
    """Why a run ends for which nobody launches an instance. `cause`: what is known to keep them from it."""
    asked = "is a worker of the pool running, and not paused?"
    return f"no instance was launched within {LAUNCH_S / 60:g} minutes: {f'{cause}.' if cause else asked} {KEPT}"


def _hopeless(tally: RunTally) -> str:
    """Why the jobs that are left would fail too; empty: nothing says so."""
    evals = tally.evals.values()
    jobs = sum(len(one.jobs) for one in evals)
    done = sum(len(one.done) for one in evals)
    failed = [why for one in evals for why in one.failed.values()]
    if len(failed) < FIRST_JOBS or (done and len(failed) <= FAILURE_SHARE * jobs):
        return ""
    return (
        f"{len(failed)} of {jobs} jobs failed for good: {_most_common(failed)}. "
        "Results are kept; the same request tries the failed jobs again, once their cause is mended"
    )


def _over(limits: Limits, spent: Spent) -> str:
    """Which of a person's limits is reached, and what to do; empty: none is."""
    if limits.max_cost is not None and spent.cost is not None and spent.cost >= limits.max_cost:
        return f"the run has cost ${spent.cost:.2f}, and its max_cost is ${limits.max_cost:.2f}. {KEPT}, with a max_cost of its own"
    if limits.deadline_hours is not None and spent.hours >= limits.deadline_hours:
        return f"the run has had the {limits.deadline_hours:g} hours of its deadline_hours. {KEPT}"
    return ""


def _stalled(tally: RunTally, limits: Limits, spent: Spent) -> str:
    """That no job was finished for too long, and what to do; empty: it isn't so, or an open job is a whole eval's work."""
    if not limits.stall_hours or spent.still_hours is None or spent.still_hours < limits.stall_hours:
        return ""
    if any(one.whole and one.open_jobs for one in tally.evals.values()):
        return ""
    return (
        f"no job was finished for {limits.stall_hours:g} hours. {KEPT}; "
        "where jobs take longer than that, raise stall_hours (0: no limit)"
    )


def _let_go(facts: Iterable[WorkerFacts], tally: RunTally) -> int:
    """How many of the fleet's first instances ended since no job was left for them: where one comes back, it needs a place.

    Theirs only: of an instance that is launched for such a job and finds none, nothing says that the next would find it.
    """
    return sum(
        fact.phase is WorkerPhase.ENDED and tally.workers.get(fact.run_id, WorkerTally()).reason == IDLE
        for fact in facts
    )


def _due(facts: Sequence[WorkerFacts], tally: RunTally, *, first: int) -> int:
    """How many instances may have been launched by now in place of lost ones; `first` is how many the fleet had.

    A lost instance is replaced if it had done a job: one that never worked would fail again in the same way. So is one that
    gave its jobs back for a reason of its own (`GIVEN_UP`). Of those that the eval itself may have brought down, no more are
    replaced than the fleet first had. Interruptions are AWS's doing: they are replaced for as long as jobs get done, and only
    so many in a row that ended before their first job.
    """
    lost = interrupted = in_vain = 0
    for fact in facts:
        said = tally.workers.get(fact.run_id, WorkerTally())
        if said.jobs:
            in_vain = 0
        if not _is_missed(fact, said):
            continue
        if fact.interrupted or said.reason == INTERRUPTED:
            interrupted += 1
            in_vain += not said.jobs
        else:
            lost += 1
    return min(lost, first) + interrupted - max(0, in_vain - first)


def _is_missed(fact: WorkerFacts, said: WorkerTally) -> bool:
    """Whether an ended instance is worth another one."""
    if fact.phase is WorkerPhase.LOST:
        return said.jobs > 0 or fact.interrupted or said.reason in GIVEN_UP
    return fact.phase is WorkerPhase.ENDED and said.reason in GIVEN_UP


def _most_common(texts: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    top = sorted(counts.items(), key=lambda item: -item[1])[:3]
    return "; ".join(text if count == 1 else f"{text} ({count} times)" for text, count in top)
