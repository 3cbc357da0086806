"""A look at an eval set, and the end of one: the calls for which `following` and a person's cancellation decide."""

from __future__ import annotations

import time
from collections.abc import Callable

from fleet.hawk.api import OVER, HawkApi, HawkError, HawkRefusedLogin
from fleet.hawk.following import PASSING, Look

STOP_S = 60.0
"""How long a runner gets to end by itself: it hears of a stop within 5 s, and has its samples' sandboxes to close."""
AGAIN_S = 2.0


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
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Have it ended: its runner by itself, so that its logs are whole, else taken off the cluster. HawkError: it goes on."""
    status = _status(api, eval_set)
    if status in OVER:
        return
    if status != "pending":  # a runner that hasn't begun would forget the stop when it does
        api.stop(eval_set)
        until = clock() + STOP_S
        while clock() < until:
            sleep(AGAIN_S)
            if _status(api, eval_set) in OVER:
                return
    api.delete(eval_set)


def _status(api: HawkApi, eval_set: str) -> str:
    job = api.job_status(eval_set)
    return "deleted" if job is None else job.status
