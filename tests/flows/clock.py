"""A clock that no test waits for. No test in here."""

from __future__ import annotations


class Clock:
    """Time that passes by being waited for."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
