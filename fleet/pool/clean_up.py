"""The end of a run: what it created is gone, or named.

The order is a contract. Workers go first, because one that still runs reads its parameter and its queues, and would report a
missing queue as a fault. Parameters go before queues, since they hold secrets. Locks go last: who takes one must find nothing
of the old run. A step that fails doesn't keep the next ones from their work; "not found" is success.

A controller may not terminate instances. It asks for the end of the worker's flow run, and the pool worker, which watches
both, terminates the instance and says so in the flow run's state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from fleet.aws.failures import AwsRefused
from fleet.evals.lock import EvalLock
from fleet.evals.preparation import RunQueues
from fleet.evals.progress import Phase, WorkerFacts
from fleet.evals.site import Site

PATIENCE_S = 60.0
"""How long instances may take to be gone after they were asked to go; EC2 needs some seconds, a reaper has all the time."""
LOOK_S = 0.5


class Workers(Protocol):
    """The flow runs of a fleet (`fleet.pool.runs`, or a fake)."""

    def of_run(self, run: str) -> list[UUID]:
        """Every worker that was started for a run."""

    def look_at(self, run_ids: Sequence[UUID]) -> list[WorkerFacts]:
        """The facts of these workers."""

    def stop(self, run_ids: Sequence[UUID], *, why: str) -> None:
        """Ask for the end of these workers."""


@dataclass(slots=True)
class Created:
    """What a run has created so far; filled in as it goes, so that clean-up knows at any moment."""

    run: str
    workers: list[UUID] = field(default_factory=list)
    queues: RunQueues | None = None
    parameters: bool = False
    locks: list[EvalLock] = field(default_factory=list)


def clean_up(
    site: Site,
    created: Created,
    workers: Workers,
    *,
    grace: float,
    why: str,
    last_words: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Remove what the run created; answers what is left, each with its reason. Never raises for what AWS refuses.

    `grace`: seconds that workers get to end by themselves after their work queue is gone (they do so within moments).
    `last_words` is called when the workers have ended and the queue of their events is still there.
    """
    left: list[str] = []
    steps: tuple[Callable[[], list[str]], ...] = (
        lambda: close_intake(site, created),
        lambda: _end_workers(created, workers, grace=grace, why=why, clock=clock, sleep=sleep),
        lambda: _listen(last_words),
        lambda: _delete_parameters(site, created),
        lambda: _delete_queues(site, created),
        lambda: _release_locks(created),
    )
    for step in steps:
        try:
            left += step()
        except AwsRefused as refused:
            left.append(str(refused))
    return left


def close_intake(site: Site, created: Created) -> list[str]:
    """Delete the work queue: a worker whose queue is gone takes it as the end of the run. AwsRefused."""
    if created.queues:
        site.queues.delete(created.queues.work)
    return []


def _end_workers(
    created: Created,
    workers: Workers,
    *,
    grace: float,
    why: str,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[str]:
    everyone = sorted({*created.workers, *workers.of_run(created.run)})
    living = _wait_for_end(everyone, workers, until=clock() + grace, clock=clock, sleep=sleep)
    if not living:
        return []
    workers.stop(living, why=why)
    left = _wait_for_end(living, workers, until=clock() + PATIENCE_S, clock=clock, sleep=sleep, stopping_is_alive=True)
    return [
        f"instance {fact.instance or 'of an unknown id'} of worker {fact.name} was asked to end and hasn't yet: "
        "the pool worker goes on trying while it runs; else terminate it by its tags"
        for fact in workers.look_at(left)
    ]


def _wait_for_end(
    run_ids: Sequence[UUID],
    workers: Workers,
    *,
    until: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    stopping_is_alive: bool = False,
) -> list[UUID]:
    """Those that are still there at `until`; a run in Cancelling still has its instance."""
    while True:
        living = [
            UUID(fact.run_id)
            for fact in workers.look_at(run_ids)
            if fact.phase.alive or (stopping_is_alive and fact.phase is Phase.STOPPED and not fact.over)
        ]
        if not living or clock() >= until:
            return living
        sleep(LOOK_S)


def _listen(last_words: Callable[[], None]) -> list[str]:
    last_words()
    return []


def _delete_parameters(site: Site, created: Created) -> list[str]:
    if created.parameters:
        site.parameters.delete(site.parameters.find(site.secrets_of(created.run)))
    return []


def _delete_queues(site: Site, created: Created) -> list[str]:
    left = []
    if created.queues:
        for url in (created.queues.events, created.queues.dead):
            try:
                site.queues.delete(url)
            except AwsRefused as refused:
                left.append(str(refused))
    return left


def _release_locks(created: Created) -> list[str]:
    left = []
    for lock in created.locks:
        try:
            lock.release()
        except AwsRefused as refused:
            left.append(str(refused))
    return left
