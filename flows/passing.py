"""What a step of the controller is tried again for: passing troubles of AWS or Hawk, for five minutes, by Prefect's own retries.

The SDK has tried a few times by then. A step that is tried again finds what it had put into AWS; what it had computed it does anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.client.schemas.objects import State, TaskRun

from fleet.aws.failures import PASSING, AwsRefused
from fleet.evals.listener import listener
from fleet.hawk.following import PASSING as OF_HAWK
from flows.run import asked_to_end
from flows.watch import PATIENCE_S

DELAYS = [2.0, 2, 5, 5, 10]
"""Seconds before each retry; the last one stays."""
RETRIES = 60
"""More than fit into one trouble's `PATIENCE_S`: time ends that, never this count."""


class MayPass:
    """Whether a step that failed is begun again: who was asked was too busy or away, not for long yet, and nobody has asked for the
    end. How long counts from the trouble's beginning, not the step's: the longest steps need it most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._troubles: dict[UUID, tuple[float, float]] = {}
        """By task run, when its trouble began and when it was last seen."""

    def __call__(self, task: Any, run: TaskRun, state: State[Any]) -> bool:
        """Prefect asks this of each failure."""
        error = state.data
        if not (isinstance(error, OF_HAWK) or (isinstance(error, AwsRefused) and error.code in PASSING)):
            return False
        now = self._clock()
        began, seen = self._troubles.get(run.id, (now, now))
        if now - seen > PATIENCE_S:  # a try that went well for so long met another trouble
            began = now
        if now - began >= PATIENCE_S or asked_to_end():
            return False
        self._troubles[run.id] = began, now
        line = f"{task.name}: {error}. It is tried again, for {PATIENCE_S / 60:g} minutes at most"
        get_run_logger().warning("%s", line)
        if began == now:
            listener.get().warn(line)
        return True


def again() -> dict[str, Any]:
    """Options of a task that is begun again when the trouble may have passed."""
    return {"retries": RETRIES, "retry_delay_seconds": DELAYS, "retry_condition_fn": MayPass()}
