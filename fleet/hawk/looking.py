"""A look at an eval set, and the end of one: the calls for which `following` and a person's cancellation decide."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto

from fleet.hawk.api import HawkApi, HawkError, HawkRefusedLogin
from fleet.hawk.following import PASSING, STALE_S, Look
from fleet.hawk.plain import answers_within

STOP_S = 15.0
"""How long a runner gets to end by itself: it hears of a stop within 5 s. One that is taken off gets 120 s more from the cluster.
A process pool kills a cancelled run 30 s after it has told it: by then both must be asked for."""
END_S = 60.0
"""How long Hawk is asked, where it fails to answer. As long as `STALE_S`, for which a launch may come through after all."""
QUICK_S = 5.0
"""How long one call waits for its answer meanwhile."""
AGAIN_S = 2.0
OPEN_S = 5.0
"""Between two tries to end what a launch may still bring."""


class Launch(Enum):
    """What is known of this run's own launch when its eval set is ended."""

    SEEN = auto()
    """It was seen at work, or there was none: Hawk's state is of what is to end."""
    ANSWERED = auto()
    """Hawk has launched it, and may still show the run before."""
    OPEN = auto()
    """It has no answer, or a conflict with another: Hawk may yet launch it, and say until then that there is nothing."""


def look(api: HawkApi, eval_set: str) -> Look:
    """How it stands. HawkError for what time doesn't mend; what does lies in the look."""
    try:
        job = api.job_status(eval_set)
    except PASSING as error:
        return Look(None, error=error)
    if job is None:
        return Look(None)
    try:
        return Look(job, api.eval_set_status(eval_set))
    except HawkRefusedLogin:
        raise
    except HawkError:  # its progress is a nicety, and has rules of its own for who may see it
        return Look(job)


def end(
    api: HawkApi,
    eval_set: str,
    *,
    launch: Launch = Launch.SEEN,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Have it ended within about `END_S`: its runner by itself, so that its logs are whole, else taken off the cluster.

    A call that fails is made again, and to take it off is good without knowing its state. HawkError: it may go on.
    """
    began = clock()
    with answers_within(QUICK_S):
        if launch is Launch.SEEN:
            seen = _seen(api, eval_set)
            if _ended(seen) or (_has_logs(seen) and _stopped(api, eval_set, began + STOP_S, sleep, clock)):
                return
        while launch is Launch.OPEN and clock() < began + STALE_S:
            # Whatever Hawk says of it: a launch that comes through after this is shown as deleted, and runs.
            with suppress(*PASSING):
                api.delete(eval_set)
            sleep(OPEN_S)
        while clock() < began + END_S:
            with suppress(*PASSING):
                api.delete(eval_set)
                return
            sleep(AGAIN_S)
        api.delete(eval_set)


def _stopped(
    api: HawkApi, eval_set: str, until: float, sleep: Callable[[float], None], clock: Callable[[], float]
) -> bool:
    """Whether its runner, told to stop, has ended by itself."""
    told = False
    while clock() < until:
        try:
            if not told:
                api.stop(eval_set)
                told = True
        except PASSING:
            pass
        except HawkError:
            break
        sleep(AGAIN_S)
        with suppress(HawkError):
            # Not its progress: that takes Hawk longest, and there may be no time for it.
            seen = Look(api.job_status(eval_set))
            if _ended(seen) or not _has_logs(seen):
                return _ended(seen)
    return False


def _seen(api: HawkApi, eval_set: str) -> Look | None:
    """None: it can't be had."""
    try:
        seen = look(api, eval_set)
    except HawkError:
        return None
    return None if seen.error else seen


def _ended(seen: Look | None) -> bool:
    """Whether nothing more will run. Not so where it failed: the cluster starts a failed runner again, and that one has forgotten
    that it was told to stop."""
    return seen is not None and (seen.job is None or seen.job.status in ("complete", "deleted"))


def _has_logs(seen: Look | None) -> bool:
    """Whether a runner may have logs to make whole. One that hasn't begun would forget the stop when it does."""
    if seen is None or seen.job is None:
        return True
    return seen.job.status not in ("pending", "failed") and (seen.progress is None or bool(seen.progress.tasks))
