"""What to do with an eval set next, from what was seen of it and a look: a table, which asks nobody anything.

Hawk's states are hints. `complete` is said of a run of errors too, so that only logs tell success. `failed` is said between two
pods of a runner, too. `pending` is said of whatever has neither pods nor imported logs: before it runs, after it ran, and of a
launch that came to nothing. And for a moment after a launch the state of the run before is still shown. What can't be believed
is waited for, with a bound. Without one only a place in the cluster's queue is, and a runner that is on the cluster.
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
"""How long an eval set may seem to wait or be imported with nothing on the cluster, before its logs are asked what it came to."""
FAILED_S = 180.0
"""How long a failed pod may be without one in its place: twice the longest time after which the cluster starts another (80 s)."""

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
    """It was seen at work or queued, since its launch where that was ours."""
    fraction: float = 0.0
    doubt: str = ""
    """What isn't believed yet."""
    doubted: float = 0.0
    """Since when; monotonic seconds."""
    refused: float | None = None
    """When the first of launches did that failed or met a conflict, until it is seen alive: one of them took place then."""


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
    job = look.job
    if job.status == "deleted" and not (seen.launched or seen.known):
        return seen, Submit()
    seen = replace(seen, known=True, fraction=max(seen.fraction, _fraction(look.progress, seen.evals)))
    if job.at_work or job.queued:
        launched = seen.launched or seen.refused is not None
        seen = replace(seen, alive=True, ran=seen.ran or job.at_work, launched=launched, refused=None, doubt="")
        return seen, Follow(_line(job, look.progress), seen.fraction)
    if job.status in OVER:
        return _over(seen, job, look.progress, now)
    return _unsure(seen, job, look.progress, now)


def after_launch(seen: Seen, now: float, error: HawkError | None = None) -> tuple[Seen, Step]:
    """What is known after `Submit` or `Resume`. `error`: what it ended with, HawkConflict or one of `PASSING`.

    After either, looks tell whether it is under way, by this launch or another's, and nothing is posted twice. Where it isn't, the
    launch is made again.
    """
    seen = replace(seen, ran=False, alive=False, doubt="")
    if error is None:
        return replace(seen, launched=True, refused=None), Follow("Hawk launches the eval set", seen.fraction)
    since = now if seen.refused is None else seen.refused
    if now - since > PATIENCE_S:
        return seen, Ended(f"{error.message()}. {KEPT}")
    return replace(seen, refused=since), Follow(f"Hawk didn't launch it: {error.why}. Looking again", seen.fraction)


def after_collection(seen: Seen, logs: int, *, whole: bool) -> Submit | Resume | None:
    """What to do when the logs were looked at. None: that is the result.

    A run that was over before this one looked goes on once, unless it is `whole`: every expected log is there, with success.
    """
    if whole or seen.launched:
        return None
    return Resume() if logs else Submit()


def _over(seen: Seen, job: JobStatus, progress: EvalSetStatus | None, now: float) -> tuple[Seen, Step]:
    if job.status == "deleted":
        end: Step = Ended(f"the eval set {seen.eval_set} was deleted on Hawk. {KEPT}")
    else:
        end = Collect()
    if job.may_start_again and not _succeeded(progress, seen.evals):
        line = "Its runner failed, says Hawk, and may be started again"
        return _doubted(seen, "failed", now, line, FAILED_S, end)
    if (seen.launched or seen.refused is not None) and not seen.alive:
        return _doubted(seen, "stale", now, "Hawk launches the eval set", STALE_S, end)
    return seen, end


def _unsure(seen: Seen, job: JobStatus, progress: EvalSetStatus | None, now: float) -> tuple[Seen, Step]:
    """It waits for its runner, or it is over and Hawk's warehouse doesn't know, or no launch took place: its logs may tell."""
    finished = progress is not None and progress.status in OVER
    if finished and seen.refused is None and (seen.ran or not seen.launched):
        return seen, Collect()
    line = _line(job, progress)
    if job.status == "pending" and seen.ran:
        line = "Hawk has no state of it for the moment"
    return _doubted(seen, "unsure", now, line, UNSURE_S if seen.refused is None else STALE_S, Collect())


def _doubted(seen: Seen, doubt: str, now: float, line: str, bound: float, end: Step) -> tuple[Seen, Step]:
    """Look again, and after `bound` seconds of the same doubt `end`."""
    if seen.doubt != doubt:
        seen = replace(seen, doubt=doubt, doubted=now)
    if now - seen.doubted > bound:
        return seen, end
    return seen, Follow(line, seen.fraction)


def _line(job: JobStatus, progress: EvalSetStatus | None) -> str:
    """The state in one line: what it waits for, or how far it is."""
    admission = job.admission
    if job.status == "pending":
        said = (admission.message or admission.reason or "") if admission is not None and job.queued else ""
        return f"Waiting for a place on Hawk's cluster{f': {said}' if said else ''}"
    if job.status == "importing":
        return "Hawk takes the logs in"
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


def _succeeded(progress: EvalSetStatus | None, evals: int) -> bool:
    """Whether every expected log is a success. Others are no end: a runner that is started again tries their tasks again."""
    tasks = newest(progress.tasks) if progress else []
    return len(tasks) >= evals and all(task.eval_status == "success" for task in tasks)


def _counts(progress: EvalSetStatus | None) -> tuple[int, int]:
    tasks = newest(progress.tasks) if progress else []
    return sum(task.progress.done for task in tasks), sum(task.progress.total for task in tasks)


def _fraction(progress: EvalSetStatus | None, evals: int) -> float:
    """Of all logs; those that aren't begun yet count as large as the others."""
    done, total = _counts(progress)
    begun = len(newest(progress.tasks)) if progress else 0
    return done / total * min(1.0, begun / max(evals, 1)) if total else 0.0
