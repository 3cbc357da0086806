"""What to do with an eval set next, from what was seen of it and a look: a table, which asks nobody anything.

Hawk's states are hints. `complete` is said of a run of errors too, so that only logs tell success. `pending` is said of a run
whose pods are gone and whose logs the warehouse hasn't got yet, so that it is believed only before anything ran. And for a
moment after a launch the state of the run before is still shown. Whatever can't be believed is waited for, with a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleet.hawk.api import OVER, EvalSetStatus, HawkError, HawkFailed, HawkUnreachable, JobStatus, TaskProgress

PATIENCE_S = 300.0
"""How long Hawk may fail to answer before the run is given up. On its cluster the eval set works on meanwhile."""
UNSEEN_S = 300.0
"""How long an eval set that was launched may be unknown to Hawk."""
STALE_S = 60.0
"""How long after a launch the end of the run before may still be shown: pods appear within seconds."""
UNSURE_S = 600.0
"""How long an eval set that ran may seem to wait or be imported, before its logs are asked what it came to."""

PASSING = (HawkUnreachable, HawkFailed)
"""What time mends."""
KEPT = "What ran is kept, and the same request goes on from it"


@dataclass(frozen=True, slots=True)
class Submit:
    """Launch it; then `after_launch`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Launch it again from what it has; then `after_launch`."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Look again later."""

    line: str
    fraction: float
    """Samples done over those planned, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Collect:
    """It is over: get its logs; then `after_collection`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will come of it."""

    why: str


Step = Submit | Resume | Follow | Collect | Ended


@dataclass(frozen=True, slots=True)
class Look:
    """What Hawk says now."""

    job: JobStatus | None
    """None: it knows no such eval set, or gave no answer."""
    progress: EvalSetStatus | None = None
    error: HawkError | None = None
    """One of `PASSING`, in place of an answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an eval set."""

    eval_set: str
    evals: int = 1
    """Logs that are expected: tasks times models."""
    launched: bool = False
    """By this run: nothing that is over now was so before."""
    known: bool = False
    """Hawk has shown it."""
    ran: bool = False
    """It was seen at work, since its launch where that was ours."""
    alive: bool = False
    """It was seen not to be over, since its launch where that was ours."""
    fraction: float = 0.0
    doubt: str = ""
    """What isn't believed yet."""
    doubted: float = 0.0
    """Since when; monotonic seconds."""
    refused: float | None = None
    """When the first of launches that failed did."""


def next_step(seen: Seen, look: Look, now: float) -> tuple[Seen, Step]:
    """What to do after a look at `now` (monotonic seconds), and what is known then."""
    if look.error is not None:
        line = f"Hawk doesn't answer: {look.error.why}. Asking again"
        return _doubted(seen, "silent", now, line, PATIENCE_S, Ended(f"{look.error.message()}. {KEPT}"))
    if look.job is None:
        if not (seen.launched or seen.known):
            return seen, Submit()
        gone = Ended(f"Hawk doesn't know the eval set {seen.eval_set} (any more). {KEPT}")
        return _doubted(seen, "unseen", now, "Hawk doesn't show the eval set yet", UNSEEN_S, gone)
    status = look.job.status
    if status == "deleted" and not (seen.launched or seen.known):
        return seen, Submit()
    seen = replace(seen, known=True, fraction=max(seen.fraction, _fraction(look.progress, seen.evals)))
    if status in OVER:
        return _over(seen, status, now)
    seen = replace(seen, alive=True)
    if status in ("pending", "importing"):
        return _unsure(seen, look.job, look.progress, now)
    return _sure(replace(seen, ran=True), _line(look.job, look.progress))


def after_launch(seen: Seen, now: float, error: HawkError | None = None) -> tuple[Seen, Step]:
    """What is known after `Submit` or `Resume`. `error`: what it ended with, HawkConflict or one of `PASSING`.

    A conflict is as good as a launch: somebody else's, most likely our own from before, is under way. After any other the next
    look tells whether Hawk did as asked, and nothing is posted twice.
    """
    if isinstance(error, PASSING):
        since = now if seen.refused is None else seen.refused
        if now - since > PATIENCE_S:
            return seen, Ended(f"{error.message()}. {KEPT}")
        return replace(seen, refused=since), Follow(f"Hawk didn't launch it: {error.why}. Looking again", seen.fraction)
    seen = replace(seen, launched=True, ran=False, alive=False, doubt="", refused=None)
    return seen, Follow("Hawk launches the eval set", seen.fraction)


def after_collection(seen: Seen, logs: int, *, whole: bool) -> Submit | Resume | None:
    """What to do when the logs were looked at. None: that is the result.

    A run that was over before this one looked goes on once, unless it is `whole`: every expected log is there, with success.
    """
    if whole or seen.launched:
        return None
    return Resume() if logs else Submit()


def _over(seen: Seen, status: str, now: float) -> tuple[Seen, Step]:
    if status == "deleted":
        end: Step = Ended(f"the eval set {seen.eval_set} was deleted on Hawk. {KEPT}")
    else:
        end = Collect()
    if seen.launched and not seen.alive:
        return _doubted(seen, "stale", now, "Hawk launches the eval set", STALE_S, end)
    return seen, end


def _unsure(seen: Seen, job: JobStatus, progress: EvalSetStatus | None, now: float) -> tuple[Seen, Step]:
    """It waits for its runner, or it is over and Hawk's warehouse doesn't know: then its logs may tell."""
    if job.status == "pending" and job.admission is not None and job.admission.waits:
        return _sure(seen, _line(job, progress))
    finished = progress is not None and progress.status in OVER
    if finished and (seen.ran or not seen.launched):
        return seen, Collect()
    if job.status == "pending" and not (seen.ran or finished):
        return _sure(seen, _line(job, progress))
    line = "Hawk takes the logs in" if job.status == "importing" else "Hawk has no state of it for the moment"
    return _doubted(seen, "unsure", now, line, UNSURE_S, Collect())


def _doubted(seen: Seen, doubt: str, now: float, line: str, bound: float, end: Step) -> tuple[Seen, Step]:
    """Look again, and after `bound` seconds of the same doubt `end`."""
    if seen.doubt != doubt:
        seen = replace(seen, doubt=doubt, doubted=now)
    if now - seen.doubted > bound:
        return seen, end
    return seen, Follow(line, seen.fraction)


def _sure(seen: Seen, line: str) -> tuple[Seen, Step]:
    return replace(seen, doubt=""), Follow(line, seen.fraction)


def _line(job: JobStatus, progress: EvalSetStatus | None) -> str:
    """The state in one line: what it waits for, or how far it is."""
    admission = job.admission
    if job.status == "pending":
        said = (admission.message or admission.reason or "") if admission is not None and admission.waits else ""
        return f"Waiting for a place on Hawk's cluster{f': {said}' if said else ''}"
    counts = _counts(progress)
    parts = [f"{counts[0]} of {counts[1]} samples" if counts[1] else "Hawk's runner starts"]
    if job.status == "waiting_for_capacity":
        held = job.unschedulable_sandboxes
        parts.append("waiting for capacity of the cluster" + (f" for {held} sandboxes" if held else ""))
    elif job.status == "stuck":
        reason = job.details.trouble_reason or (progress.trouble_reason if progress else None) or "it says no reason"
        parts.append(f"stuck, says Hawk: {reason}. It may recover; its page tells more")
    elif job.status != "running":
        parts.append(f"{job.status}, says Hawk")
    if job.pending_interactions:
        parts.append(f"{job.pending_interactions} wait for a person on Hawk's page")
    return ", ".join(parts)


def newest(tasks: Sequence[TaskProgress]) -> list[TaskProgress]:
    """The last log of each task: one that was tried again has several, and their names begin with when they were begun."""
    return list(
        {task.task_id or task.log_file: task for task in sorted(tasks, key=lambda task: task.log_file)}.values()
    )


def _counts(progress: EvalSetStatus | None) -> tuple[int, int]:
    tasks = newest(progress.tasks) if progress else []
    return sum(task.progress.done for task in tasks), sum(task.progress.total for task in tasks)


def _fraction(progress: EvalSetStatus | None, evals: int) -> float:
    """Of all logs; those that aren't begun yet count as large as the others."""
    done, total = _counts(progress)
    begun = len(newest(progress.tasks)) if progress else 0
    return done / total * min(1.0, begun / max(evals, 1)) if total else 0.0
