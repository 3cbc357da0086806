"""Each instance's secrets, written as soon as its id is known; it is booting meanwhile, and retries until they are there.

One flow run serves all instances of a launch: it stays open while they come, in a thread beside the watch, so that an SSM that
is busy keeps nobody from looking at the run.
"""

from __future__ import annotations

import contextvars
import queue
from collections.abc import Iterator
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

from fleet.aws.failures import AwsRefused
from fleet.evals.handout import Handout
from fleet.evals.progress import WorkerFacts
from fleet.pool.runs import stop
from flows.names import secrets_name

IN_FLIGHT = 8
"""Writes at a time: one that waits for its answer, or is refused again and again, holds up no other."""

Refused = queue.SimpleQueue[tuple[str, str]]
"""Instances that got no secrets, each with the reason."""


class Arrivals:
    """Instances that wait for their secrets, as they come. Shows nothing of what they are given."""

    def __init__(self, handout: Handout, refused: Refused) -> None:
        self.handout = handout
        self.refused = refused
        self.served: set[str] = set()
        """Instances that have their secrets, or never will."""
        self._coming: queue.SimpleQueue[WorkerFacts | None] = queue.SimpleQueue()

    def add(self, worker: WorkerFacts) -> None:
        """One more."""
        self._coming.put(worker)

    def end(self) -> None:
        """No more will come."""
        self._coming.put(None)

    def __iter__(self) -> Iterator[WorkerFacts]:
        """Each as it comes, until there will be no more."""
        while (worker := self._coming.get()) is not None:
            yield worker


arrivals: contextvars.ContextVar[Arrivals] = contextvars.ContextVar("arrivals")
"""What the flow serves. Not a parameter of it: those are shown to everybody, with all that hangs on them."""


@flow(
    name="provision-secrets",
    flow_run_name=secrets_name,
    task_runner=ThreadPoolTaskRunner(max_workers=IN_FLIGHT),  # type: ignore[arg-type]
    persist_result=False,
)
def provision_secrets(run: str, path: str, count: int) -> dict[str, str]:
    """Write the secrets of each of `count` instances of a run below `path`; answers those that got none, with the reason.

    Ends when each has them or has ended. An instance whose secrets can't be written is asked to end and named; the others go on.
    """
    coming = arrivals.get()
    writes = {
        str(worker.instance): write_secrets.with_options(task_run_name=f"write {worker.instance}").submit(
            coming, worker
        )
        for worker in coming
    }
    return {instance: why for instance, write in writes.items() if (why := write.result())}


@task(name="write-secrets", persist_result=False, cache_policy=NO_CACHE)
def write_secrets(coming: Arrivals, worker: WorkerFacts) -> str:
    """One instance's parameters, tagged with its ARN so that only it can read them; answers why they couldn't be written."""
    instance, handout = str(worker.instance), coming.handout
    why = ""
    try:
        if handout.write(instance):
            get_run_logger().info("Wrote %s", handout.parameter(instance))
        else:
            get_run_logger().info("%s has ended and needs no secrets", instance)
    except AwsRefused as refused:
        why = str(refused)
        get_run_logger().error("%s gets no secrets and is ended: %s", instance, why)
        coming.refused.put((instance, why))
        stop([UUID(worker.run_id)], why=f"its secrets could not be written: {why}")
    coming.served.add(instance)
    return why
