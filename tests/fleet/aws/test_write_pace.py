from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.write_pace import FASTEST, FIRST, SLOWEST, WritePace


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
    assert times == pytest.approx([0, 1 / FIRST, 2 / FIRST, 3 / FIRST])


def test_turns_that_nobody_took_are_not_made_up_for() -> None:
    pace, clock = a_pace()
    pace.turn()
    clock.now = 100
    pace.turn()
    pace.turn()
    assert clock.now == pytest.approx(100 + 1 / FIRST)


def test_refusals_of_one_moment_slow_it_once() -> None:
    pace, clock = a_pace()
    for _ in range(8):
        pace.refused()
    once = pace.rate
    assert SLOWEST < once < FIRST
    clock.now = 1
    pace.refused()
    assert pace.rate < once


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), max_size=300))
def test_the_rate_stays_between_its_bounds(answers: list[tuple[bool, float]]) -> None:
    pace, clock = a_pace()
    for taken, seconds in answers:
        clock.now += seconds
        pace.taken() if taken else pace.refused()
        assert SLOWEST <= pace.rate <= FASTEST


class Bucket:
    """AWS's way of throttling: so many tokens a second, and a few in store."""

    def __init__(self, clock: Clock, rate: float, size: float) -> None:
        self.clock, self.rate, self.size = clock, rate, size
        self.tokens, self.at = size, 0.0

    def takes(self) -> bool:
        self.tokens = min(self.size, self.tokens + (self.clock.now - self.at) * self.rate)
        self.at = self.clock.now
        taken = self.tokens >= 1
        self.tokens -= taken
        return taken


@pytest.mark.parametrize("rate", [1.5, 3.0, 8.0])
def test_it_finds_the_rate_that_the_account_takes(rate: float) -> None:
    """A thousand writes take little longer than the account's limit makes them, and few are refused."""
    pace, clock = a_pace()
    bucket = Bucket(clock, rate, size=rate)
    written = refused = 0
    while written < 1000:
        pace.turn()
        if bucket.takes():
            written += 1
            pace.taken()
        else:
            refused += 1
            pace.refused()
    assert clock.now < 1.1 * 1000 / rate
    assert refused < 0.1 * written
