"""The rate at which a run writes parameters: AWS says how many a second it takes by refusing some, and this learns it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FIRST = 3.0
"""Writes a second to begin with: what SSM is known to take by default."""
SLOWEST = 1.0
"""However often it refuses: 64 instances with two of three calls refused are written in 192 s then."""
FASTEST = 10.0
"""What an account with raised limits takes."""
SLOWER = 0.8
"""Times the rate, at a refusal; once a second at most, since calls in flight are refused together."""
FASTER = 1.02
"""Times the rate, for each that went through: one in a dozen is refused where the account's limit is reached."""


class WritePace:
    """Turns for writes, one after the other, shared by all threads of a run."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.rate = FIRST
        """Turns a second now."""
        self._clock = clock
        self._pause = pause
        self._lock = threading.Lock()  # guards the rate and both times below; nobody waits while holding it
        self._next = 0.0
        self._slowed = float("-inf")

    def turn(self) -> None:
        """Wait for this caller's turn."""
        with self._lock:
            now = self._clock()
            mine = max(now, self._next)
            self._next = mine + 1 / self.rate
        if mine > now:
            self._pause(mine - now)

    def refused(self) -> None:
        """A write was refused as one too many: go slower."""
        with self._lock:
            now = self._clock()
            if now - self._slowed >= 1:
                self._slowed = now
                self.rate = max(SLOWEST, self.rate * SLOWER)

    def taken(self) -> None:
        """A write went through: the next ones may come a little sooner."""
        with self._lock:
            self.rate = min(FASTEST, self.rate * FASTER)
