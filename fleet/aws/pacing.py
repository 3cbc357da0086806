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
"""Times the rate, at a refusal; once a second at most, since calls in flight are refused together."""
FASTER = 0.2
"""Added to the rate by each call that went through."""


class Bucket:
    """Tokens that come at a rate. Pure: the time is told."""

    def __init__(self, rates: Rates, now: float) -> None:
        self.rate = rates.first
        """Calls a second now."""
        self._rates = rates
        self._tokens, self._at = rates.burst, now
        self._slowed = float("-inf")

    def take(self, now: float) -> float:
        """Take a turn; the seconds until it comes. Turns are given in the order in which they are asked for."""
        self._fill(now)
        self._tokens -= 1
        return max(0.0, -self._tokens / self.rate)

    def refused(self, now: float) -> None:
        """A call was one too many: nothing is left in EC2's own bucket, and it fills more slowly than was thought."""
        self._fill(now)
        self._tokens = min(self._tokens, 0.0)
        if now - self._slowed >= 1.0:
            self._slowed = now
            self.rate = max(self._rates.slowest, self.rate * SLOWER)

    def went(self) -> None:
        """A call went through."""
        self.rate = min(self._rates.fastest, self.rate + FASTER)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._rates.burst, self._tokens + max(0.0, now - self._at) * self.rate)
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
