"""The lease of one message: renewed each quarter of its length, so that two renewals may fail before others see the job.

SQS sets two bounds. It counts how often a message was taken, whatever became of it: a job that is given back on purpose goes
back as a fresh copy, so that what is counted of a copy are the workers that died or fell silent; a death that its worker outlived
is written into the copy. And it hides a message for `MOST_LEASE_SECONDS` in all: before those are over, a copy takes the message's
place while the job goes on, and is taken over by the worker that runs it as soon as it sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import anyio

from bootstrap.clockwork import Clockwork
from bootstrap.reports import SendsMessages
from fleet.aws.failures import AwsRefused
from fleet.aws.queues import MOST_LEASE_SECONDS, LeaseLost, Message, QueueGone
from fleet.evals.documents import JobMessage

RELEASE_SECONDS = 10.0
"""For giving back while all else is being cancelled; without it the job comes back when its lease lapses."""


LONGEST_HOLD = MOST_LEASE_SECONDS - 60
"""Seconds after which a copy takes a message's place; SQS's clock began a moment before ours."""

LEAVE_SECONDS = 600
"""How long such a copy is left to the worker that runs its job: it sees it when it has a free slot, and others pass it on."""


class LeasesMessages(SendsMessages, Protocol):
    """What is needed of `fleet.aws.queues.Queues`."""

    def extend(self, url: str, receipt: str, seconds: int) -> None:
        """Renew; LeaseLost: too late."""
        ...

    def release(self, url: str, receipt: str, delay: int = 0) -> bool:
        """Let others have it; False: they have it already."""
        ...

    def done(self, url: str, receipt: str) -> bool:
        """Delete it; False: the lease had lapsed."""
        ...


class Lease:
    """One message, held until it is done, given back, or lost.

    A lost lease means that another worker may run the same job. The work goes on all the same: it is paid for, the first
    result put wins, and the second one is dropped. Should the message come to this worker again, its lease is held again.
    """

    def __init__(
        self,
        queues: LeasesMessages,
        url: str,
        message: Message,
        *,
        seconds: int,
        clockwork: Clockwork,
        say: Callable[[str], None],
        holder: str = "",
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`holder`: the instance that holds it; `wall`: seconds since the epoch, which other instances know too."""
        self.message = message
        self.job: JobMessage | None = None
        """What the message says, once it was read."""
        self.lost = False
        self.closing = False
        """It is about to be done or given back: what comes for its job from now on is for another attempt."""
        self._others: list[Message] = []
        """Further messages of this job, which came while it was held. Each would lapse, come again, and be counted as a death."""
        self._over = False
        self._queues = queues
        self._url = url
        self._seconds = seconds
        self._clockwork = clockwork
        self._say = say
        self._holder = holder
        self._wall = wall
        self._since = clockwork.now()

    @property
    def deaths(self) -> int:
        """How often the job was taken before, and neither finished nor given back."""
        return (self.job.deaths if self.job else 0) + self.message.receives - 1

    async def keep(self) -> None:
        """Renew until cancelled. A renewal that fails is tried again a quarter later; a lost lease has none."""
        while True:
            await self._clockwork.sleep(self._seconds / 4)
            if self.lost or self._over:
                continue
            if self._clockwork.now() + self._seconds > self._since + LONGEST_HOLD:
                await self._replace()
            else:
                await self._ask(self._queues.extend, self._seconds)
            for other in tuple(self._others):
                if await self._ask(self._queues.extend, self._seconds, of=other):
                    self._others.remove(other)

    def take_over(self, message: Message, job: JobMessage) -> bool:
        """Go on by this message, which came for the job that is being run under this lease; the one before stays hidden too.

        False: the lease is `closing`, and the message not for it.
        """
        if self.closing:
            return False
        if not self.lost:
            self._others.append(self.message)
        self.message, self.job = message, job
        self.lost = False
        self._since = self._clockwork.now()
        return True

    async def done(self) -> None:
        """Delete the message. A lost lease is no error: the other holder finds the result there, and deletes it."""
        self.closing = self._over = True
        await self._ask(self._queues.done)
        await self._drop_others()

    async def give_back(
        self, delay: int = 0, *, holder: str = "", leave_until: float = 0.0, died: bool = False
    ) -> None:
        """Let others have the job after `delay` seconds (at most 900), and count nothing; also while all is being cancelled.

        By a copy, which SQS hasn't counted yet. Where that can't be sent, the message itself is released. `holder`,
        `leave_until`: for whom the copy is, until when. `died`: it counts as a death all the same. A lost lease is another's to
        give back.
        """
        if self._over:
            return
        self.closing = True
        with anyio.move_on_after(RELEASE_SECONDS, shield=True):
            if not self.lost and not (
                self.job and await self._swap(self._copy(self.job, holder, leave_until, int(died)), delay)
            ):
                await self._ask(self._queues.release, delay)
            await self._drop_others()
        self._over = True  # in time or not: a call that was left behind may still send the copy, and one is enough

    async def release(self) -> None:
        """Let others have the message itself at once, which counts as a death; also while all else is being cancelled."""
        if self._over:
            return
        with anyio.move_on_after(RELEASE_SECONDS, shield=True):
            await self._ask(self._queues.release, 0)
        self._over = True

    def leave(self) -> None:
        """Do nothing more with it: it lapses."""
        self.closing = self._over = True

    async def _replace(self) -> None:
        """Put a copy in the message's place, to be taken over here; until then the lease counts as lost."""
        before = self.message
        if self.job and await self._swap(self._copy(self.job, self._holder, self._wall() + LEAVE_SECONDS), 0):
            self.lost = self.lost or self.message is before  # it may have come already
            self._say(f"job {self.job.job} goes on under a fresh message: SQS holds none for more than 12 hours")

    def _copy(self, job: JobMessage, holder: str, leave_until: float, deaths: int = 0) -> JobMessage:
        return job.model_copy(update={"deaths": self.deaths + deaths, "holder": holder, "leave_until": leave_until})

    async def _swap(self, copy: JobMessage, delay: int) -> bool:
        """Send the copy, then delete the message; whoever is killed between leaves the job twice, which is harmless."""
        replaced = self.message
        try:
            await self._clockwork.in_thread(self._queues.send, self._url, [copy.write()], delay)
        except QueueGone:
            return True  # nobody wants it any more
        except AwsRefused as refusal:
            self._say(f"job {copy.job} goes back as it is: {refusal}")
            return False
        await self._ask(self._queues.done, of=replaced)  # by now the copy may have come, and have been taken over
        return True

    async def _drop_others(self) -> None:
        """Delete the further messages: the job is done, or goes on by one."""
        for other in self._others:
            await self._ask(self._queues.done, of=other)

    async def _ask(self, call: Callable[..., bool | None], *args: int, of: Message | None = None) -> bool:
        """Ask SQS about a message, this lease's own if no other is named; whether it is another's by now."""
        message, lost = of or self.message, False
        try:
            lost = await self._clockwork.in_thread(call, self._url, message.receipt, *args) is False
        except LeaseLost as loss:
            lost = True
            self._say(str(loss))
        except AwsRefused as refusal:
            self._say(str(refusal))
        if self.message is message:  # not another that has taken its place
            self.lost = self.lost or lost
        return lost
