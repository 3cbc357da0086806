"""The pace at which a run's threads write parameters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fleet.aws.pacing import Bucket, Rates

WRITES = Rates(first=3.0, slowest=1.0, fastest=10.0, burst=1.0)
"""PutParameter: SSM takes three a second by default, ten where an account's limits are raised. At the slowest, 64 instances of
which each needs three tries are written in 192 s.
"""


class WritePace:
    """Turns for writes, one after the other, shared by all threads of a run."""

    def __init__(
        self,
        rates: Rates = WRITES,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._pause = pause
        self._lock = threading.Lock()  # guards the bucket; nobody waits while holding it
        self._bucket = Bucket(rates, clock())

    @property
    def rate(self) -> float:
        """Turns a second now."""
        return self._bucket.rate

    def turn(self) -> None:
        """Wait for this caller's turn."""
        with self._lock:
            wait = self._bucket.take(self._clock())
        if wait > 0:
            self._pause(wait)

    def refused(self) -> None:
        """A write was refused as one too many: go slower."""
        with self._lock:
            self._bucket.refused(self._clock())

    def taken(self) -> None:
        """A write went through: the next ones may come a little sooner."""
        with self._lock:
            self._bucket.went()
