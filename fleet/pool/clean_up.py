"""The end of a run: what it created is gone, or named.

The order is a contract. The intake closes first: a worker whose work queue is gone takes that as the end of the run. Secrets go
next, since they must not outlive anything. Then the workers, because one that still runs would report a missing queue of
events as a fault. Locks go last: who takes one must find nothing of the old run. Whatever goes wrong in one step, the next ones
have their turn; "not found" is success.

Only the workers' end is asked of Prefect's server. One that doesn't answer is asked for some seconds in all; what it wasn't told
is named, and everything in AWS goes all the same: what there is was written down by this controller itself.

A controller may not terminate instances. It asks for the end of the worker's flow run, and the pool worker, which watches
both, terminates the instance and says so in the flow run's state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from uuid import UUID

import httpx

from fleet.evals.lock import EvalLock
from fleet.evals.progress import WorkerFacts, WorkerPhase
from fleet.evals.site import Site

PATIENCE_S = 20.0
"""How long workers may take to end after they were asked to. Together with the rest it must fit into the 30 s that a process
pool leaves a cancelled run."""
SILENCE_S = 4.0
"""Seconds for which a Prefect server that doesn't answer is asked; a run that ended by itself asks as long as it waits for its
workers. After that it isn't asked any more."""
LOOK_S = 0.5


T = TypeVar("T")


class ServerSilent(BaseException):
    """Prefect's server doesn't answer. Not an `Exception`: one step's failure is no reason to leave out the next, this one is."""


def is_silence(error: httpx.HTTPError) -> bool:
    """Whether Prefect's server gave no answer of its own: there was none, or it, or what stands before it, is overloaded."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    return True


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
    secrets: str = ""
    """Path of its instances' parameters; empty: it has none."""
    written: Callable[[], Sequence[str]] = tuple
    """Names of the parameters that this controller has written, or has begun to: listings lag."""
    workers: list[UUID] = field(default_factory=list)
    intake: str = ""
    """URL of the work queue."""
    queues: list[str] = field(default_factory=list)
    """URLs of all its queues, as far as they exist."""
    locks: list[EvalLock] = field(default_factory=list)

    def queue(self, url: str) -> None:
        """A queue exists; said again where the step that makes them is done again."""
        if url not in self.queues:
            self.queues.append(url)


@dataclass(slots=True)
class CleanUp:
    """One clean-up on its way. Use `clean_up`."""

    site: Site
    created: Created
    workers: Workers
    why: str
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    patience: float = SILENCE_S
    """Seconds for which Prefect's server may be silent."""
    silent: bool = False
    """It was, for so long: it isn't asked any more."""
    left: list[str] = field(default_factory=list)
    """What is left, each with its reason."""

    def attempt(self, what: str, step: Callable[[], None]) -> None:
        """Do a step; its failure is named, and keeps nothing else from its work."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - Prefect's server or AWS may fail in any way; the next steps must run
            self.left.append(f"{what}: {error}")

    def close_intake(self) -> None:
        """Delete the work queue."""
        if self.created.intake:
            self.site.queues.delete(self.created.intake)

    def stop_all(self) -> None:
        """Ask every worker to end."""
        for run_id in self._living(self._everyone(), stopping_lives=False):
            self.attempt(f"worker {run_id} wasn't asked to end", lambda run_id=run_id: self._stop([run_id]))  # type: ignore[misc]

    def delete_named_parameters(self) -> None:
        """Delete the secrets by their names: listings lag."""
        if names := list(self.created.written()):
            self.site.parameters.delete(names)

    def delete_listed_parameters(self) -> None:
        """Delete whatever secrets a listing still finds."""
        if self.created.secrets:
            self.site.parameters.delete(self.site.parameters.find(self.created.secrets))

    def end_workers(self, grace: float) -> None:
        """Wait for the workers to end by themselves, then ask those that haven't, and wait for them."""
        living = self._wait(self._everyone(), seconds=grace)
        if unasked := self._living(living, stopping_lives=False):
            self._stop(unasked)
        living = self._wait(living, seconds=PATIENCE_S)
        for fact in self._look_at(living):
            self.left.append(
                f"instance {fact.instance or 'of an unknown id'} of {fact.name} was asked to end and hasn't yet: "
                "the pool worker goes on trying while it runs; else terminate it by its tags"
            )

    def delete_queue(self, url: str) -> None:
        """Delete one queue."""
        self.site.queues.delete(url)

    def of_workers(self, step: Callable[[], None]) -> None:
        """Do a step that asks Prefect's server; none, once it is silent."""
        if self.silent:
            return
        try:
            self.attempt("the workers", step)
        except ServerSilent as silence:
            self.silent = True
            self.left.append(
                f"the run's workers ({len(self.created.workers)} known): the Prefect server doesn't answer ({silence}), so that "
                "it wasn't asked to end them. Their instances end by themselves when they find no queue; else terminate them "
                "by their tags"
            )

    def _stop(self, run_ids: Sequence[UUID]) -> None:
        self._ask(lambda: self.workers.stop(run_ids, why=self.why))

    def _look_at(self, run_ids: Sequence[UUID]) -> list[WorkerFacts]:
        return self._ask(lambda: self.workers.look_at(run_ids))

    def _everyone(self) -> list[UUID]:
        # Also those whose starter died before it could write them down.
        return sorted({*self.created.workers, *self._ask(lambda: self.workers.of_run(self.created.run))})

    def _ask(self, question: Callable[[], T]) -> T:
        """What Prefect's server answers. ServerSilent: it doesn't, as long as there is patience."""
        until = self.clock() + self.patience
        while True:
            try:
                return question()
            except httpx.HTTPError as error:
                if not is_silence(error):
                    raise
                if self.clock() >= until:
                    raise ServerSilent(str(error) or type(error).__name__) from error
            self.sleep(LOOK_S)

    def _living(self, run_ids: Sequence[UUID], *, stopping_lives: bool = True) -> list[UUID]:
        """Those that haven't ended; a run in Cancelling still has its instance."""
        return [
            UUID(fact.run_id)
            for fact in self._look_at(run_ids)
            if fact.phase.alive or (stopping_lives and fact.phase is WorkerPhase.STOPPED and not fact.over)
        ]

    def _wait(self, run_ids: Sequence[UUID], *, seconds: float) -> list[UUID]:
        """Those that are still there after so long."""
        until = self.clock() + seconds
        while living := self._living(run_ids):
            if self.clock() >= until:
                return living
            self.sleep(LOOK_S)
        return []


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
    """Remove what the run created; answers what is left, each with its reason. Never raises, whatever is refused.

    `grace`: seconds that workers get to end by themselves after their work queue is gone (they do so within moments); 0: they are
    asked to end at once. `last_words` is called when they have ended and the queue of their events is still there.
    """
    work = CleanUp(site, created, workers, why, clock, sleep, patience=max(grace, SILENCE_S))
    work.attempt("the work queue", work.close_intake)
    if not grace:
        work.of_workers(work.stop_all)
    work.attempt("the instances' secrets", work.delete_named_parameters)
    work.attempt("the instances' secrets", work.delete_listed_parameters)
    work.of_workers(lambda: work.end_workers(grace))
    if not work.silent:  # it is asked how they are
        work.attempt("the last events", last_words)
    for url in created.queues:
        work.attempt(f"queue {url}", lambda url=url: work.delete_queue(url))  # type: ignore[misc]
    for lock in created.locks:
        work.attempt("a lock", lock.release)
    return work.left
