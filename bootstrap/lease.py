"""The lease of one message: renewed each quarter of its length, so that two renewals may fail before others see the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import anyio

from bootstrap.clockwork import Clockwork
from fleet.aws.failures import AwsRefused
from fleet.aws.queues import LeaseLost, Message

RELEASE_SECONDS = 10.0
"""For a release while all else is being cancelled; without it the job comes back when its lease lapses."""


class LeasesMessages(Protocol):
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
    """One message, held until it is done, released, or lost.

    A lost lease means that another worker may run the same job. The work goes on all the same: it is paid for, the first
    result put wins, and the second one is dropped.
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
    ) -> None:
        self.message = message
        self.lost = False
        self._queues = queues
        self._url = url
        self._seconds = seconds
        self._clockwork = clockwork
        self._say = say

    async def keep(self) -> None:
        """Renew until cancelled, or lost. A renewal that fails for another reason is tried again a quarter later."""
        while not self.lost:
            await self._clockwork.sleep(self._seconds / 4)
            await self._ask(self._queues.extend, self._seconds)

    async def done(self) -> None:
        """Delete the message. A lost lease is no error: the other holder finds the result there, and deletes it."""
        await self._ask(self._queues.done)

    async def release(self, delay: int = 0) -> None:
        """Let others have the message after `delay` seconds; at once, also while all else is being cancelled."""
        with anyio.move_on_after(RELEASE_SECONDS, shield=True):
            await self._ask(self._queues.release, delay)

    async def _ask(self, call: Callable[..., bool | None], *args: int) -> None:
        try:
            if await self._clockwork.in_thread(call, self._url, self.message.receipt, *args) is False:
                self.lost = True
        except LeaseLost as loss:
            self.lost = True
            self._say(str(loss))
        except AwsRefused as refusal:
            self._say(str(refusal))
