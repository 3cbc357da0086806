"""Looking at a run until it is over: S3 for what is finished, Prefect for the workers, the events queue for the details."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.exceptions import ObjectNotFound

from fleet.aws.failures import AwsRefused, CredentialsBad, Denied
from fleet.aws.prices import Price
from fleet.errors import FleetError
from fleet.evals.dead_letters import take_in
from fleet.evals.documents import EvalId, WorkerEvent
from fleet.evals.handout import Handout
from fleet.evals.listener import listener
from fleet.evals.preparation import FailureRecords, stored_jobs, stored_results
from fleet.evals.progress import EvalTally, Progress, RunTally, WorkerFacts, WorkerPhase, snapshot
from fleet.evals.result_checks import ResultChecks
from fleet.evals.site import Site
from fleet.evals.steps import KEPT, Finished, GoOn, Limits, Spent, Step, Stop, next_step, not_launched
from fleet.pool import runs as workers_of
from fleet.pool.clean_up import is_silence
from fleet.pool.hold_up import hold_up
from fleet.wire import DocumentRefused

LOOK_S = 1
"""Seconds between two looks: the long poll for events is the wait, so that a finished job is shown at once."""
EVENTS_A_LOOK = 1_000
"""Events taken in at a look, at most: a busy fleet must not keep its controller from looking at anything else."""
LIST_S = 15.0
"""Seconds between two listings of S3 while no event says that something is finished."""
LISTING_SHARE = 10
"""A listing is made again after so many times as long as it took: of a hundred thousand results S3 gives a hundred pages."""
LISTING_KEYS = 5_000
"""Above so many results a listing costs whole seconds, so that it is made on schedule only. Nor are their ends looked at then."""
PATIENCE_S = 300.0
"""How long AWS or Prefect may fail to answer before the run is given up. Instances work on meanwhile."""
AGAIN_S = 2.0
T = TypeVar("T")


class LoginEnded(FleetError):
    """AWS doesn't take the controller's credentials any more, in the middle of a run."""

    why: str

    def message(self) -> str:
        """One line, with what helps."""
        return f"the controller's AWS login ended while the run went on: {self.why}. {KEPT}"


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
    failures: Mapping[EvalId, FailureRecords]
    prices: Sequence[Price]
    """Of all that the instances may be."""
    dead: str = ""
    """URL of the dead-letter queue; empty: it isn't looked at."""
    checks: ResultChecks | None = None
    """What looks at results as they come; None: the merge will."""
    handout: Handout | None = None
    """The run's secrets, if it has some."""
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    replaced: int = 0
    facts: Sequence[WorkerFacts] = ()
    """The workers at the last look."""
    _began: float = field(init=False)
    _seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each worker's instance was first and last seen alive: what is paid for."""
    _listed: float = 0.0
    _listing: float = 0.0
    """Seconds that the last listing took."""
    _news: bool = True
    """What S3 holds now isn't all known: something was heard since it was listed, or results are yet to be looked at."""
    _settled: int = 0
    """Jobs that were finished, or had failed for good, at the last look."""
    _moved: float | None = None
    """When the last of them was, or the first worker was ready; None: none has been yet."""

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def renews_credentials(self) -> bool:
        """Whether AWS credentials that are refused now may be good again in a moment."""
        return self.site.aws.renews_credentials

    def look(self) -> tuple[Progress, Step]:
        """One look at everything, and what to do now."""
        self.hear(wait=LOOK_S)
        if self._must_list():
            self._list()
        self._look_at_workers()
        seen = self._snapshot()
        return seen, self._next(seen.whole_cost)

    def take_stock(self) -> Progress:
        """The last snapshot, when the workers have ended: from Prefect, and what was heard and listed before."""
        self._look_at_workers()
        return self._snapshot()

    def hear(self, *, wait: int = 0) -> None:
        """Take in the events that have come, up to a bound. AwsRefused."""
        for _ in range(0, EVENTS_A_LOOK, 10):
            messages = self.site.queues.receive(self.events, wait=wait)
            for message in messages:
                # An event of another release is passed over: nothing hangs on it, and it must not come again.
                with suppress(DocumentRefused):
                    self._take(WorkerEvent.read(message.body))
            self.site.queues.done_all(self.events, [message.receipt for message in messages])
            wait = 0
            if not messages:
                return

    def _take(self, event: WorkerEvent) -> None:
        self.tally.hear(event)
        if event.kind in ("job_done", "job_failed"):
            self._news = True
        if event.kind == "secrets_fetched" and self.handout:
            self.handout.fetched(event.instance, str(event.detail.get("parameter")))
        if event.kind == "job_started" and self.handout:
            self.handout.working(event.instance)

    def _look_at_workers(self) -> None:
        now = self.clock()
        facts = []
        for fact in workers_of.look_at(self.workers):
            if fact.instance and not fact.over:
                first, _ = self._seen.setdefault(fact.run_id, (now, now))
                self._seen[fact.run_id] = (first, now)
            first, last = self._seen.get(fact.run_id, (now, now))
            facts.append(dataclasses.replace(fact, live_seconds=last - first))
        self.facts = facts

    def _next(self, cost: float | None) -> Step:
        step = self._step(cost)
        if isinstance(step, Stop):
            # The last words of workers that are over by now may have come since they were last heard.
            self.hear(wait=LOOK_S)
        if isinstance(step, Stop) or (isinstance(step, Finished) and self._news):
            # Events are hints: what ends a run is read from S3 itself.
            self._list()
            step = self._step(cost)
        if isinstance(step, Finished) and self._news:
            step = GoOn()
        if isinstance(step, Stop) and step.unlaunched:
            with suppress(httpx.HTTPError, ObjectNotFound):  # the run ends in any case, if with a question for a person
                step = Stop(why=not_launched(hold_up(UUID(step.unlaunched))))
        return step

    def _step(self, cost: float | None) -> Step:
        now = self.clock()
        settled = sum(one.settled for one in self.tally.evals.values())
        ready = any(fact.phase is WorkerPhase.WORKING for fact in self.facts)
        if (self._moved is None and ready) or (self._moved is not None and settled != self._settled):
            self._moved = now
        self._settled = settled
        spent = Spent(
            hours=(now - self._began) / 3600,
            still_hours=None if self._moved is None else (now - self._moved) / 3600,
            cost=cost,
        )
        return next_step(
            self.tally,
            self.facts,
            replaced=self.replaced,
            resends=self.checks.rounds if self.checks else 0,
            limits=self.limits,
            spent=spent,
        )

    def _snapshot(self) -> Progress:
        return snapshot(self.tally, self.facts, prices=self.prices, seconds=self.clock() - self._began)

    def _must_list(self) -> bool:
        waited = self.clock() - self._listed
        return waited >= max(LIST_S, LISTING_SHARE * self._listing) or (self._news and self._is_small)

    @property
    def _is_small(self) -> bool:
        return sum(len(one.jobs) for one in self.tally.evals.values()) <= LISTING_KEYS

    def _list(self) -> None:
        began = self.clock()
        self._read_ends()
        put_aside = list(take_in(self.site, self.dead, self.tally.evals)) if self.dead else []
        for line in put_aside:
            get_run_logger().warning("%s", line)
        if put_aside:
            self._read_ends()
        self._listed = self.clock()
        self._listing = self._listed - began
        self._news = self.checks is not None and self.checks.behind

    def _read_ends(self) -> None:
        for eval_id, tally in self.tally.evals.items():
            if self.checks and self._is_small:
                self._check(self.checks, tally)
            else:
                tally.done = stored_jobs(self.site, tally)
            failed = self.failures[eval_id].final(self.site) if eval_id in self.failures else {}
            tally.failed = {job: why for job, why in failed.items() if job not in tally.done}

    def _check(self, checks: ResultChecks, tally: EvalTally) -> None:
        results = stored_results(self.site, tally.eval_id)
        tally.done = results.keys() & tally.jobs.keys()
        again = checks.taken_back(tally.eval_id, {job: results[job] for job in tally.done})
        tally.done -= again.keys()
        for job, flaw in again.items():
            get_run_logger().warning("The result of job %s can't be used and runs again: %s", job, flaw)


def watching(
    watch: Watch,
    is_cancelled: Callable[[], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[Progress, Step]]:
    """Look until told otherwise, over AWS's and Prefect's bad moments.

    CancelledByPerson: the run was cancelled in the UI. What fails for `PATIENCE_S` comes through, Denied at once.
    LoginEnded: AWS doesn't take our credentials. Those that botocore renews have as long to be good again: a login is renewed in
    another terminal, a role's refresh fails for a moment. No waiting gives others to a process.
    """
    well, told = clock(), False
    while True:
        try:
            if is_cancelled():
                raise CancelledByPerson(
                    "cancelled by a person; results so far are kept, the same request goes on from them"
                )
            seen = watch.look()
        except CredentialsBad as error:
            if not watch.renews_credentials or clock() - well >= PATIENCE_S:
                raise LoginEnded(why=str(error)) from error
            if not told:
                warn(
                    f"AWS doesn't take this controller's credentials: {error}. Instances work on, and the run goes on with them "
                    f"if that is mended within {PATIENCE_S / 60:g} minutes"
                )
            told = True
            sleep(AGAIN_S)
            continue
        except Denied:
            raise
        except (AwsRefused, httpx.HTTPError) as error:
            if clock() - well >= PATIENCE_S:
                raise
            get_run_logger().warning("Looking again: %s", error)
            sleep(AGAIN_S)
            continue
        well, told = clock(), False
        yield seen


def warn(line: str) -> None:
    """Tell whoever reads the log, and whoever sits at a terminal."""
    get_run_logger().warning("%s", line)
    listener.get().warn(line)


def patiently(
    subflow: Callable[[], T],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What a subflow that may run twice answers, begun anew while Prefect's server doesn't answer: for `PATIENCE_S`, as a look."""
    until = clock() + PATIENCE_S
    while True:
        try:
            return subflow()
        except httpx.HTTPError as error:
            if not is_silence(error) or clock() >= until:
                raise
            get_run_logger().warning("The Prefect server doesn't answer, trying again: %s", error)
        sleep(AGAIN_S)
