"""Answers that launches of one moment share: sixty workers of one fleet need one look at their image, not sixty."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KEPT_S = 60.0
"""Seconds for which an answer is good: long for a burst of launches, short for a person who has mended what was refused."""

Found = TypeVar("Found")


class Recent(Generic[Found]):
    """Answers by key. Safe between threads: one looks, the others wait for it. What was refused isn't remembered."""

    def __init__(self, seconds: float = KEPT_S, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()  # guards the table, and is held while one looks
        self._kept: dict[Hashable, tuple[float, Found]] = {}

    def get(self, key: Hashable, look: Callable[[], Found]) -> Found:
        """The answer of the last `seconds`, or that of `look`; raises what it raises."""
        with self._lock:
            now = self._clock()
            self._kept = {each: kept for each, kept in self._kept.items() if kept[0] > now}
            if key not in self._kept:
                self._kept[key] = (now + self._seconds, look())
            return self._kept[key][1]
