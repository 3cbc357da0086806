"""The worker's loop: as many jobs at a time as there are slots, until nothing is left to do or someone says stop.

It takes messages only for slots that are free, so that no job waits here while another instance is idle. It ends when no
job is left for it (or none came for a while), when its queue is gone (the run is over), or when it is told to stop; then every
job in flight is released at once, before anything else is tidied up. What watches over the host beside it may hold its intake
(`hold`), or have it `leave`: then each job in flight ends here or is released, as the watch decides. A job that ended for the
host's sake holds the intake too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import anyio
from anyio.abc import TaskGroup
from pydantic import JsonValue

from bootstrap.delivery import Delivered, Deliveries, Outcome
from bootstrap.slots import Round, Slots
from fleet.aws.failures import AwsRefused, CredentialsBad, Denied
from fleet.aws.queues import BATCH, Depth, Message, QueueGone
from fleet.evals.documents import EvalId, JobMessage
from fleet.evals.forecast import DOUBLE_EVERY
from fleet.wire import DocumentRefused

POLL_SECONDS = 3
"""How long an empty queue is waited on in one call. A call can't be cut short, so this is how long a stop may take."""
BEAT_SECONDS = 5.0
TELL_SECONDS = 30.0
"""Between two lines that say how far the work is: a line a job would be thousands."""
REFUSED_SECONDS = 5.0
"""Before the queue is asked again after it didn't answer."""
SILENT_SECONDS = 300.0
"""Without an answer of the queue, up to which that isn't idleness: as long as the controller looks again (`flows.watch`)."""
QUIET_SECONDS = 10.0
"""Without a job before the queue is asked whether any can come: by then some long polls found none on any of SQS's servers."""
LEAVE_LOOK_SECONDS = 1.0
"""Between two looks at whether the time to leave has come, which may be brought forward."""

Reason = Literal["idle", "queue gone", "stopped", "interrupted", "host"]
"""Why work ended. interrupted: EC2 takes the instance back. host: the machine can't go on."""
WORKED: frozenset[Outcome] = frozenset({"done", "again", "failed"})
"""Outcomes of jobs that were this worker's own."""
Keeps = Callable[[float, Sequence[float]], bool]
"""Whether a job in flight may go on: its seconds so far, and those of the jobs of its eval that were done here."""


class ReceivesMessages(Protocol):
    """What is needed of `fleet.aws.queues.Queues`."""

    def receive(self, url: str, *, most: int = 10, wait: int = 20) -> list[Message]:
        """Up to `most` messages, waiting up to `wait` seconds for the first."""
        ...

    def depth(self, url: str) -> Depth:
        """How many messages there are, about."""
        ...


Watch = Callable[["Work"], Coroutine[Any, Any, None]]
"""What watches while a worker works."""


@dataclass(slots=True, eq=False)
class _Flight:
    """A job that this worker holds."""

    message: Message
    job: JobMessage | None
    """What the message names; None: nothing that means anything here."""
    since: float
    """Monotonic seconds."""
    released: bool = False
    """Whether this worker has let go of it while it ran."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def eval_id(self) -> EvalId:
        """Of the eval that it belongs to; empty: of none."""
        return self.job.eval_id if self.job else ""


@dataclass(slots=True)
class Work:
    """One worker at work. `run` it once."""

    deliveries: Deliveries
    receiver: ReceivesMessages
    slots: Slots
    idle_seconds: float
    """Without a job after which it ends whatever the queue says."""
    stop: anyio.Event
    """Set: stop now."""
    say: Callable[[str], None]
    beside: Sequence[Watch] = ()
    """Each runs while it works, and ends with it."""
    fit_runners: Callable[[int], None] = lambda _most: None
    """Told how many slots there are when that changes: a runner beyond them only holds memory."""
    outcomes: Counter[str] = field(default_factory=Counter)
    given_back: list[str] = field(default_factory=list)
    """Jobs that were in flight and didn't end here."""
    durations: dict[EvalId, list[float]] = field(default_factory=dict)
    """Seconds that each job took which was done here, from message to message's end."""
    held: bool = False
    """No jobs are taken for now."""
    leaving: Literal["interrupted", "host"] | None = None
    why: str = ""
    """Why it leaves, for a person."""
    draw: Callable[[], float] = random.random
    """By which slots are rounded."""
    _round: Round = field(default_factory=Round)
    _judged: float = 0.0
    """Monotonic seconds up to which the round has counted."""
    _leave_by: float = 0.0
    _left: anyio.Event = field(default_factory=anyio.Event)
    _flights: list[_Flight] = field(default_factory=list)
    _tell_from: float = 0.0
    _freed: anyio.Event = field(default_factory=anyio.Event)
    _idle_from: float = 0.0
    """Monotonic seconds: the last job's end, the end of the queue's silence, or when one comes back that is to be tried again."""
    _silent_from: float | None = None
    """Monotonic seconds: since when the queue doesn't answer; None: it does."""

    async def run(self) -> Reason:
        """Work until the end; why it ended. Raises what made work impossible."""
        self._idle_from = self._judged = self.deliveries.clockwork.now()
        why: Reason = "stopped"  # unless taking ends by itself: a stop cancels it
        try:
            async with anyio.create_task_group() as around:
                around.start_soon(self._beat)
                around.start_soon(self._grow)
                for watch in self.beside:
                    around.start_soon(watch, self)
                async with anyio.create_task_group() as jobs:
                    around.start_soon(self._stop_when_told, jobs)
                    around.start_soon(self._leave_in_time, jobs)
                    why = await self._take(jobs)
                    if why in ("queue gone", "stopped"):
                        self._give_back(jobs)
                around.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from None  # it has its own traceback; the groups around it say nothing more
        if self.given_back:
            self.say(f"jobs in flight that were given back: {len(self.given_back)}")
            await self.deliveries.reports.send("given_back", jobs=list[JsonValue](sorted(self.given_back)))
        return self.leaving or why

    @property
    def running(self) -> int:
        """How many jobs are in flight."""
        return len(self._flights)

    def hold(self, *, fewer: bool = False) -> None:
        """Take no jobs until `resume`; those in flight go on. `fewer`: they are too many for this machine.

        Those in flight at the first word of it, that is: what ends while no jobs are taken has been counted.
        """
        if fewer and not self.held:
            self._take_slots(self.slots.after_shortage(self.running))
        self.held = True

    def resume(self) -> None:
        """Take jobs again."""
        self.held = False
        self._idle_from = max(self._idle_from, self.deliveries.clockwork.now())
        self._freed.set()

    def leave(self, reason: Literal["interrupted", "host"], why: str, *, by: float, keeps: Keeps) -> None:
        """Take no more jobs, and end for this reason. A job that `keeps` doesn't name goes back at once, the others go on.

        What isn't done `by` then (monotonic seconds) goes back too. Called again, the last reason counts and the earliest end.
        """
        self._leave_by = by if self.leaving is None else min(by, self._leave_by)
        self.leaving, self.why = reason, why
        now = self.deliveries.clockwork.now()
        self._release(
            flight for flight in self._flights if not keeps(now - flight.since, self.durations.get(flight.eval_id, ()))
        )
        self._left.set()
        self._freed.set()

    async def _take(self, jobs: TaskGroup) -> Reason:
        """Take messages while there are free slots; why no more are taken."""
        clock = self.deliveries.clockwork
        while not self.stop.is_set() and not self.leaving:
            free = 0 if self.held else self.slots.free(self.running)
            if not free:
                self._freed = anyio.Event()
                await self._freed.wait()
                continue
            try:
                messages = await clock.in_thread(self._receive, min(free, BATCH))
                self._silent_from = None
            except QueueGone:
                return "queue gone"
            except (Denied, CredentialsBad):
                raise
            except AwsRefused as refusal:
                self.say(f"the work queue doesn't answer: {refusal}")
                messages = []
                self._silent_from = clock.now() if self._silent_from is None else self._silent_from
                await clock.sleep(REFUSED_SECONDS)
                if clock.now() - self._silent_from < SILENT_SECONDS:
                    self._idle_from = max(self._idle_from, clock.now())
            for message in messages:  # each task is started even if cancelled by now: it is what releases its message
                flight = _Flight(message, _job_of(message), clock.now())
                if self.held or self.leaving:  # since the queue was asked
                    flight.scope.cancel()
                self._flights.append(flight)
                self._idle_from = max(self._idle_from, clock.now())
                jobs.start_soon(self._do, flight)
            if await self._nothing_is_left():
                return "idle"
        return self.leaving or "stopped"

    async def _nothing_is_left(self) -> bool:
        """Whether it is idle and no job can be expected."""
        clock = self.deliveries.clockwork
        idle = clock.now() - self._idle_from
        if self.held or self.running or idle < min(QUIET_SECONDS, self.idle_seconds):
            return False
        try:
            depth = await clock.in_thread(self.receiver.depth, self.deliveries.queue)
        except AwsRefused:  # the next poll finds out what it is
            depth = None
        has_worked = not WORKED.isdisjoint(self.outcomes)
        stays = self.idle_seconds if has_worked else max(self.idle_seconds, self.deliveries.lease_seconds)
        return not self.running and is_over(idle, depth, stays, has_worked=has_worked)

    def _receive(self, most: int) -> list[Message]:
        return self.receiver.receive(self.deliveries.queue, most=most, wait=POLL_SECONDS)

    async def _do(self, flight: _Flight) -> None:
        clock = self.deliveries.clockwork
        delivered: Delivered | None = None
        try:
            with flight.scope:
                delivered = await self.deliveries.deliver(flight.message)
                self.outcomes[delivered.outcome] += 1
                if delivered.outcome == "done":
                    self.durations.setdefault(flight.eval_id, []).append(clock.now() - flight.since)
                self._idle_from = max(self._idle_from, clock.now() + delivered.again_in)
                self._tell()
                await self._adapt(delivered)
        finally:
            self._count_stopped(flight, delivered)
            self._flights.remove(flight)
            self._idle_from = max(self._idle_from, clock.now())
            self._freed.set()

    def _count_stopped(self, flight: _Flight, delivered: Delivered | None) -> None:
        """Count a job whose delivery came to nothing: it went back, unless its result was being put just then."""
        if flight.job is None:
            return
        key = flight.job.eval_id, flight.job.job
        if delivered is None and key in self.deliveries.stored:
            self.outcomes["done"] += 1
        elif delivered is None and flight.released:
            self.given_back.append(flight.job.job)
        self.deliveries.stored.discard(key)

    def _tell(self) -> None:
        """Say how far the work is: after the first job, and then now and again."""
        now = self.deliveries.clockwork.now()
        if now >= self._tell_from:
            self._tell_from = now + TELL_SECONDS
            self.say(f"{told(self.outcomes)}, {self.running - 1} more in flight")

    async def _adapt(self, delivered: Delivered) -> None:
        """Let the slots follow what the job met."""
        if delivered.unfit and not self.held:  # the next look of the guard says how it goes on
            self.hold(fewer=True)
            self.say(
                f"a job ended since this host is unfit: {delivered.unfit}. No more jobs are taken until it is well"
            )
            await self.deliveries.reports.send("host", taking=False, why=delivered.unfit)
        elif delivered.rate_limited:
            self._limit(self.slots.after_rate_limit())  # while it waits for its next attempt it holds no slot
            await self.deliveries.reports.send("rate_limited", times=delivered.rate_limited, slots=self.slots.now)
        elif delivered.outcome == "done":
            self._take_slots(self.slots.after_clean_job())

    def refused(self, seconds: float) -> None:
        """A provider refused a call of a job in flight by its rate; the job waits so long before it tries again."""
        self._round.wait(seconds)
        self._limit(self.slots.after_rate_limit())

    def _judge_round(self) -> None:
        """Take in the time since the last beat, and decide when a round is over. What runs beyond the slots says nothing."""
        if self.held or self.running > self.slots.now:
            self._next_round()
            return
        now = self.deliveries.clockwork.now()
        self._round.pass_by(now - self._judged, self.running)
        self._judged = now
        if (share := self._round.share) is not None:
            full = self.running >= self.slots.now
            self._limit(self.slots.after_round(share, full=full, draw=self.draw()))
            self._next_round()

    def _next_round(self) -> None:
        self._round, self._judged = Round(), self.deliveries.clockwork.now()

    def _limit(self, slots: Slots) -> None:
        """Take what rate limits make of the slots."""
        before, now = self.slots.now, slots.now
        self._take_slots(slots)
        if now != before:
            self._next_round()
            self.say(f"rate {'limited' if now < before else 'allows more'}: {before} slots become {now}")
            self._freed.set()

    async def _grow(self) -> None:
        """Let the slots follow time, while nothing has said how many are right."""
        while not self.slots.level_known:
            await self.deliveries.clockwork.sleep(DOUBLE_EVERY)
            if not self.held and not self.leaving and self.running >= self.slots.now < self.slots.most:
                self._take_slots(self.slots.after_full_use())
                self._freed.set()

    def _take_slots(self, slots: Slots) -> None:
        self.slots = slots
        self.fit_runners(slots.now)

    async def _beat(self) -> None:
        while True:
            await self.deliveries.reports.send("beat", slots=self.slots.now, running=self.running)
            await self.deliveries.clockwork.sleep(BEAT_SECONDS)
            self._judge_round()

    async def _stop_when_told(self, jobs: TaskGroup) -> None:
        await self.stop.wait()
        self._give_back(jobs)

    async def _leave_in_time(self, jobs: TaskGroup) -> None:
        await self._left.wait()
        clock = self.deliveries.clockwork
        while (left := self._leave_by - clock.now()) > 0:
            await clock.sleep(min(left, LEAVE_LOOK_SECONDS))
        self._give_back(jobs)

    def _give_back(self, jobs: TaskGroup) -> None:
        """Cancel every delivery, and the wait for more."""
        self._release(self._flights)
        jobs.cancel_scope.cancel()

    def _release(self, flights: Iterable[_Flight]) -> None:
        """Cancel these deliveries: each releases its message at once."""
        for flight in flights:
            if flight.message.receipt in self.deliveries.held and not flight.scope.cancel_called:
                flight.released = True
            flight.scope.cancel()


def is_over(idle: float, depth: Depth | None, stays: float, *, has_worked: bool) -> bool:
    """Whether a worker that is idle for so many seconds ends: it `stays` no longer without a job, or none is in the queue.

    To one that has had a job those that others hold don't count. Each is somebody's who takes it up again, or whom the controller
    replaces when they are lost (`fleet.evals.steps`); to stay for that would cost every instance of every run its last minute. One
    that has had none may itself be that replacement, and come before the lost one's lease has lapsed.
    `depth`: of the work queue; None: not known.
    """
    if idle >= stays:
        return True
    if idle < QUIET_SECONDS or depth is None or depth.waiting or depth.delayed:
        return False
    return has_worked or not depth.leased


def told(outcomes: Mapping[str, int]) -> str:
    """How many jobs came to what, for a person."""
    return (
        ", ".join(f"{count} {'job' if count == 1 else 'jobs'} {outcome}" for outcome, count in sorted(outcomes.items()))
        or "no job"
    )


def _job_of(message: Message) -> JobMessage | None:
    """The job that a message names; None, for one that means nothing here."""
    try:
        return JobMessage.read(message.body)
    except DocumentRefused:
        return None


def _first(error: BaseException) -> BaseException:
    """The first error in a group of groups: one is enough to say why work ended."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
