"""How often EC2 is asked, by a whole pool worker: it says how many calls a second it takes by refusing some, and this learns it.

EC2 counts calls by account, region and action in a bucket that refills (RunInstances: 2 a second, a few at once). All launches
of a pool worker draw on one `Pacer`, so that sixty of them don't each learn it anew by being refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Calls a second."""

    first: float
    slowest: float
    """However often EC2 refuses: a launch has a deadline, and at this rate some of it comes to its turn."""
    fastest: float
    burst: float
    """Calls that may go at once after a rest."""


LAUNCHES = Rates(first=2.0, slowest=1.0, fastest=20.0, burst=5.0)
"""RunInstances, CreateFleet."""
TAGGINGS = Rates(first=10.0, slowest=3.0, fastest=50.0, burst=40.0)
"""CreateTags: EC2 takes a hundred at once and ten a second."""
SLOWER = 0.5
"""Times the rate, at a refusal."""
TOGETHER_S = 1.0
"""Refusals after the first that say nothing new, in seconds: calls in flight are refused together. Where turns have been given
beyond that, it is until the last of them: they come at the old rate.
"""
FASTER = 0.2
"""Added to the rate by each call that went through, until one is refused."""
BACK = 0.3
"""From then on: the share of the way back to the rate of that refusal (the level) that each call goes."""
NEAR = 0.05
"""How near to the level counts as there, as a share of it."""
PROBE = 0.0005
"""Beyond: added to the rate by the first call, twice that by the second, and so on. Slowly at first, since this is where the limit
is likely to be, then faster, since it has been raised perhaps.
"""
LOWER = 0.95
"""Times the level, where a refusal comes before the level was reached again."""


class Bucket:
    """Tokens that come at a rate. Pure: the time is told.

    The rate goes by refusals as TCP's CUBIC does (RFC 9438): down at once, quickly back to just below where it was, slowly beyond.
    Turns are given ahead, and a turn that was given stays as it is: the next is counted from it, at the rate of now. Were it
    counted from now, turns given at several rates would come in heaps, and the heaps be refused.
    """

    def __init__(self, rates: Rates, now: float) -> None:
        self.rate = rates.first
        """Calls a second now."""
        self._rates = rates
        self._tokens, self._at = rates.burst, now
        """`_at` is the last turn that was given, where that is yet to come."""
        self._deaf_until = float("-inf")
        self._level: float | None = None
        """The rate at which a call was refused last."""
        self._probes = 0
        """Calls that went through since that rate was reached again."""

    def take(self, now: float) -> float:
        """Take a turn; the seconds until it comes. Turns are given in the order in which they are asked for."""
        self._fill(now)
        if (short := 1.0 - self._tokens) > 0:  # counted from the last turn on: those that were given stay as they are
            self._tokens = 0.0
            self._at += short / self.rate
        else:
            self._tokens -= 1.0
        return self._at - now

    def refused(self, now: float) -> None:
        """A call was one too many: nothing is left in EC2's own bucket, and it fills more slowly than was thought."""
        self._fill(now)
        self._tokens = 0.0
        if now >= self._deaf_until:
            self._deaf_until = max(now + TOGETHER_S, self._at)
            self._level = self.rate * (LOWER if self._level and self.rate < self._level else 1.0)
            self._probes = 0
            self.rate = max(self._rates.slowest, self.rate * SLOWER)

    def went(self) -> None:
        """A call went through."""
        self.rate = min(self._rates.fastest, self.rate + self._step())

    def _step(self) -> float:
        if self._level is None:
            return FASTER
        if (short := self._level - self.rate) > NEAR * self._level:
            return BACK * short
        self._probes += 1
        return PROBE * self._probes

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._rates.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now


class Pacer:
    """A bucket that its callers wait for. For the tasks of one event loop."""

    def __init__(self, rates: Rates, *, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock, self._sleep = clock, sleep
        self._bucket = Bucket(rates, clock())

    @property
    def rate(self) -> float:
        """Calls a second now."""
        return self._bucket.rate

    async def turn(self) -> None:
        """Wait for this caller's turn."""
        if (wait := self._bucket.take(self._clock())) > 0:
            await self._sleep(wait)

    def refused(self) -> None:
        """EC2 throttled a call."""
        self._bucket.refused(self._clock())

    def went(self) -> None:
        """EC2 took a call, whatever it answered."""
        self._bucket.went()
