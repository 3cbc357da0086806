from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleet.aws.write_pace import WRITES, WritePace


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def a_pace() -> tuple[WritePace, Clock]:
    clock = Clock()
    return WritePace(clock=clock, pause=clock.pause), clock


def test_the_first_turn_is_now_and_the_next_ones_come_at_the_rate() -> None:
    pace, clock = a_pace()
    times = []
    for _ in range(4):
        pace.turn()
        times.append(clock.now)
    assert times == pytest.approx([0, 1 / WRITES.first, 2 / WRITES.first, 3 / WRITES.first])


@pytest.mark.fault("throttled")
def test_refusals_of_one_moment_slow_it_once() -> None:
    pace, clock = a_pace()
    for _ in range(8):
        pace.refused()
    once = pace.rate
    assert WRITES.slowest < once < WRITES.first
    clock.now = 1
    pace.refused()
    assert pace.rate < once


def test_threads_get_a_turn_each_and_wait_for_it_side_by_side() -> None:
    """All wait at once: one that waits holds up nobody who only asks."""
    waits: list[float] = []
    together = threading.Barrier(6)

    def pause(seconds: float) -> None:
        waits.append(seconds)
        together.wait(10)

    pace = WritePace(clock=lambda: 0.0, pause=pause)
    pace.turn()
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda _: pace.turn(), range(6)))
    assert sorted(waits) == pytest.approx([n / WRITES.first for n in range(1, 7)])


class Limit:
    """AWS's way of throttling: so many tokens a second, and a few in store."""

    def __init__(self, clock: Clock, rate: float) -> None:
        self.clock, self.rate = clock, rate
        self.tokens, self.at = rate, 0.0

    def takes(self) -> bool:
        self.tokens = min(self.rate, self.tokens + (self.clock.now - self.at) * self.rate)
        self.at = self.clock.now
        taken = self.tokens >= 1
        self.tokens -= taken
        return taken


@pytest.mark.parametrize("rate", [3.0, 8.0])
@pytest.mark.fault("throttled")
def test_it_finds_the_rate_that_the_account_takes(rate: float) -> None:
    """A thousand writes take little longer than the account's limit makes them, and few are refused."""
    pace, clock = a_pace()
    limit = Limit(clock, rate)
    written = refused = 0
    while written < 1000:
        pace.turn()
        if limit.takes():
            written += 1
            pace.taken()
        else:
            refused += 1
            pace.refused()
    assert clock.now < 1.05 * 1000 / rate
    assert refused < 0.1 * written
