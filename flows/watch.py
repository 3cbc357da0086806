"""Looking at a run until it is over: S3 for what is finished, Prefect for the workers, the events queue for the details."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from prefect import runtime

from fleet.evals.documents import EvalId, WorkerEvent
from fleet.evals.preparation import failed_jobs, finished_jobs
from fleet.evals.progress import Finished, Progress, RunTally, Step, Stop, WorkerFacts, next_step, snapshot
from fleet.evals.site import Site
from fleet.pool import runs as workers_of
from fleet.wire import DocumentRefused

LOOK_S = 1
"""Seconds between two looks: the long poll for events is the wait, so that a finished job is shown at once."""
LIST_S = 15.0
"""Seconds between two listings of S3 while no event says that something is finished."""
LISTING_KEYS = 5_000
"""Above so many results a listing costs whole seconds, so that it is made on schedule only."""


class CancelledByPerson(BaseException):
    """Somebody cancelled the run in the UI. Not an `Exception`: nothing on the way up may take it for a fault."""


@dataclass(slots=True)
class Watch:
    """What a watch knows; `workers` grows when instances are launched later."""

    site: Site
    tally: RunTally
    events: str
    """URL of the events queue."""
    workers: list[UUID]
    earlier_failures: Mapping[EvalId, Mapping[str, str]]
    secrets: str
    """Path of the instances' parameters; empty: the run has none."""
    price: float | None
    replaced: int = 0
    began: float = field(default_factory=time.monotonic)
    _listed: float = 0.0
    _news: bool = True

    def look(self) -> tuple[Progress, Step]:
        """One look at everything, and what to do now."""
        self.hear()
        if self._must_list():
            self._list()
        facts = workers_of.look_at(self.workers)
        step = self._next(facts)
        return snapshot(self.tally, facts, price=self.price, seconds=time.monotonic() - self.began), step

    def _next(self, facts: Sequence[WorkerFacts]) -> Step:
        step = next_step(self.tally, facts, replaced=self.replaced)
        if isinstance(step, (Finished, Stop)) and self._news:
            # Events are hints: what ends a run is read from S3 itself.
            self._list()
            step = next_step(self.tally, facts, replaced=self.replaced)
        return step

    def take_stock(self) -> Progress:
        """The last snapshot, from what Prefect knows of the workers and what was heard and listed before."""
        return snapshot(
            self.tally, workers_of.look_at(self.workers), price=self.price, seconds=time.monotonic() - self.began
        )

    def hear(self) -> None:
        """Take in the events that have come. AwsRefused."""
        messages = self.site.queues.receive(self.events, wait=LOOK_S)
        while messages:
            for message in messages:
                # An event of another release is passed over: nothing hangs on it, and it must not come again.
                with suppress(DocumentRefused):
                    self._take(WorkerEvent.read(message.body))
                self.site.queues.done(self.events, message.receipt)
            messages = self.site.queues.receive(self.events, wait=0)

    def _take(self, event: WorkerEvent) -> None:
        self.tally.hear(event)
        if event.kind in ("job_done", "job_failed"):
            self._news = True
        if event.kind == "secrets_fetched" and self.secrets:
            self.site.parameters.delete([f"{self.secrets}/{event.instance}"])

    def _must_list(self) -> bool:
        waited = time.monotonic() - self._listed
        small = sum(len(one.jobs) for one in self.tally.evals.values()) <= LISTING_KEYS
        return waited >= LIST_S or (self._news and small)

    def _list(self) -> None:
        for eval_id, tally in self.tally.evals.items():
            tally.done = finished_jobs(self.site, eval_id) & tally.jobs.keys()
            failed = failed_jobs(self.site, eval_id, earlier=self.earlier_failures.get(eval_id, {}))
            tally.failed = {job: why for job, why in failed.items() if job not in tally.done}
        self._listed = time.monotonic()
        self._news = False


def watching(watch: Watch) -> Iterator[tuple[Progress, Step]]:
    """Look until told otherwise. CancelledByPerson: the run was cancelled in the UI, and no runner is there to stop us."""
    run_id = runtime.flow_run.id
    while True:
        yield watch.look()
        if run_id and workers_of.is_being_cancelled(run_id):
            raise CancelledByPerson(
                "cancelled by a person; results so far are kept, the same request goes on from them"
            )
