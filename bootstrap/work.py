"""The worker's loop: as many jobs at a time as there are slots, until nothing is left to do or someone says stop.

It takes messages only for slots that are free, so that no job waits here while another instance is idle. It ends when no
job came for a while, when its queue is gone (the run is over), or when it is told to stop; then every job in flight is
released at once, before anything else is tidied up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from pydantic import JsonValue

from bootstrap.delivery import Delivered, Deliveries
from bootstrap.slots import Slots
from fleet.aws.failures import AwsRefused, CredentialsBad, Denied
from fleet.aws.queues import BATCH, Message, QueueGone

POLL_SECONDS = 3
"""How long an empty queue is waited on in one call. A call can't be cut short, so this is how long a stop may take."""
BEAT_SECONDS = 5.0
TELL_SECONDS = 30.0
"""Between two lines that say how far the work is: a line a job would be thousands."""
REFUSED_SECONDS = 5.0
"""Before the queue is asked again after it didn't answer."""


class ReceivesMessages(Protocol):
    """What is needed of `fleet.aws.queues.Queues`."""

    def receive(self, url: str, *, most: int = 10, wait: int = 20) -> list[Message]:
        """Up to `most` messages, waiting up to `wait` seconds for the first."""
        ...


@dataclass(slots=True)
class Work:
    """One worker at work. `run` it once."""

    deliveries: Deliveries
    receiver: ReceivesMessages
    slots: Slots
    idle_seconds: float
    stop: anyio.Event
    """Set: stop now."""
    say: Callable[[str], None]
    outcomes: Counter[str] = field(default_factory=Counter)
    running: int = 0
    given_back: list[str] = field(default_factory=list)
    """Jobs that were in flight when it stopped."""
    _tell_from: float = 0.0
    _freed: anyio.Event = field(default_factory=anyio.Event)
    _idle_from: float = 0.0
    """Monotonic seconds: the last job's end, or the moment at which one comes back that is to be tried again."""

    async def run(self) -> str:
        """Work until the end; why it ended: `idle`, `queue gone` or `stopped`. Raises what made work impossible."""
        self._idle_from = self.deliveries.clockwork.now()
        why = "stopped"  # unless taking ends by itself: a stop cancels it
        try:
            async with anyio.create_task_group() as around:
                around.start_soon(self._beat)
                async with anyio.create_task_group() as jobs:
                    around.start_soon(self._stop_when_told, jobs)
                    why = await self._take(jobs)
                    if why != "idle":
                        self._give_back(jobs)
                around.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from None  # it has its own traceback; the groups around it say nothing more
        if self.given_back:
            await self.deliveries.reports.send("given_back", jobs=list[JsonValue](self.given_back))
        return why

    async def _take(self, jobs: TaskGroup) -> str:
        """Take messages while there are free slots; why no more are taken."""
        clock = self.deliveries.clockwork
        while not self.stop.is_set():
            free = self.slots.free(self.running)
            if not free:
                self._freed = anyio.Event()
                await self._freed.wait()
                continue
            try:
                messages = await clock.in_thread(self._receive, min(free, BATCH))
            except QueueGone:
                return "queue gone"
            except (Denied, CredentialsBad):
                raise
            except AwsRefused as refusal:
                self.say(f"the work queue doesn't answer: {refusal}")
                messages = []
                await clock.sleep(REFUSED_SECONDS)
            for message in messages:  # each task is started even if cancelled by now: it is what releases its message
                self.running += 1
                self._idle_from = max(self._idle_from, clock.now())
                jobs.start_soon(self._do, message)
            if not self.running and clock.now() - self._idle_from >= self.idle_seconds:
                return "idle"
        return "stopped"

    def _receive(self, most: int) -> list[Message]:
        return self.receiver.receive(self.deliveries.queue, most=most, wait=POLL_SECONDS)

    async def _do(self, message: Message) -> None:
        try:
            delivered = await self.deliveries.deliver(message)
            self.outcomes[delivered.outcome] += 1
            self._idle_from = max(self._idle_from, self.deliveries.clockwork.now() + delivered.again_in)
            self._tell()
            await self._adapt(delivered)
        finally:
            self.running -= 1
            self._idle_from = max(self._idle_from, self.deliveries.clockwork.now())
            self._freed.set()

    def _tell(self) -> None:
        """Say how far the work is: after the first job, and then now and again."""
        now = self.deliveries.clockwork.now()
        if now >= self._tell_from:
            self._tell_from = now + TELL_SECONDS
            self.say(f"{told(self.outcomes)}, {self.running - 1} more in flight")

    async def _adapt(self, delivered: Delivered) -> None:
        """Let the slots follow what the job met."""
        if delivered.rate_limited:
            before = self.slots.now
            self.slots = self.slots.after_rate_limit(self.deliveries.clockwork.now())
            if self.slots.now != before:
                self.say(f"rate limited: {before} slots become {self.slots.now}")
            await self.deliveries.reports.send("rate_limited", times=delivered.rate_limited, slots=self.slots.now)
        elif delivered.outcome == "done":
            self.slots = self.slots.after_clean_job()

    async def _beat(self) -> None:
        while True:
            await self.deliveries.reports.send("beat", slots=self.slots.now, running=self.running)
            await self.deliveries.clockwork.sleep(BEAT_SECONDS)

    async def _stop_when_told(self, jobs: TaskGroup) -> None:
        await self.stop.wait()
        self._give_back(jobs)

    def _give_back(self, jobs: TaskGroup) -> None:
        """Cancel every delivery: each releases its message at once."""
        if not jobs.cancel_scope.cancel_called:
            self.given_back = sorted(message.job for message in self.deliveries.held.values())
            if self.given_back:
                self.say(f"stopping; jobs in flight that are given back: {len(self.given_back)}")
            jobs.cancel_scope.cancel()


def told(outcomes: Mapping[str, int]) -> str:
    """How many jobs came to what, for a person."""
    return (
        ", ".join(f"{count} {'job' if count == 1 else 'jobs'} {outcome}" for outcome, count in sorted(outcomes.items()))
        or "no job"
    )


def _first(error: BaseException) -> BaseException:
    """The first error in a group of groups: one is enough to say why work ended."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
