"""What a step of the controller is tried again for: passing troubles of AWS or Hawk, for five minutes, by Prefect's own retries.

The SDK has tried a few times by then. A step that is tried again finds what it had done, and goes on from there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect.client.schemas.objects import State, TaskRun

from fleet.aws.failures import PASSING, AwsRefused
from fleet.evals.listener import listener
from fleet.hawk.following import PASSING as OF_HAWK
from flows.run import asked_to_end
from flows.watch import PATIENCE_S

DELAYS = [2.0, 2, 5, 5, 10]
"""Seconds before each retry; the last one stays."""
RETRIES = 60
"""More than fit into `PATIENCE_S`: time ends them, never this count."""


def may_pass(task: Any, run: TaskRun, state: State[Any]) -> bool:
    """Whether a step that failed is begun again: who was asked was too busy or away, not for long yet, and nobody has asked for
    the end."""
    error = state.data
    if not (isinstance(error, OF_HAWK) or (isinstance(error, AwsRefused) and error.code in PASSING)):
        return False
    began = run.start_time or datetime.now(UTC)
    if (datetime.now(UTC) - began).total_seconds() >= PATIENCE_S or asked_to_end():
        return False
    listener.get().warn(f"{task.name}: {error}. It is tried again, for {PATIENCE_S / 60:g} minutes at most")
    return True


AGAIN: dict[str, Any] = {"retries": RETRIES, "retry_delay_seconds": DELAYS, "retry_condition_fn": may_pass}
"""Options of a task that is begun again when the trouble may have passed."""
