"""The pace of calls: turns come in order, refusals slow it down, successes speed it up, within bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.capacity import Candidate
from fleet.aws.hunt import Hunt, Member, Pace
from fleet.aws.pacing import LAUNCHES, Bucket, Pacer, Rates
from tests.fleet.aws.ec2 import OK, ORDER, SLOW, Clock, FakeEc2

RATES = Rates(first=2.0, slowest=0.5, fastest=4.0, burst=3.0)


def test_after_a_rest_some_go_at_once_and_then_the_rate_holds() -> None:
    bucket = Bucket(RATES, 0.0)
    assert [bucket.take(0.0) for _ in range(6)] == [0.0, 0.0, 0.0, 0.5, 1.0, 1.5]
    assert bucket.take(100.0) == 0.0


@pytest.mark.fault("throttled")
def test_a_refusal_halves_the_rate_once_a_second_and_empties_the_bucket() -> None:
    bucket = Bucket(RATES, 0.0)
    for _ in range(5):
        bucket.refused(0.0)  # calls in flight are refused together
    assert bucket.rate == 1.0
    assert bucket.take(0.0) == 1.0
    bucket.refused(1.0)
    bucket.refused(2.0)
    assert bucket.rate == RATES.slowest


def test_calls_that_go_through_make_it_faster_to_an_end() -> None:
    bucket = Bucket(RATES, 0.0)
    bucket.went()
    assert bucket.rate == 2.2
    for _ in range(100):
        bucket.went()
    assert bucket.rate == RATES.fastest


Event = tuple[Literal["take", "refused", "went"], float]
events: st.SearchStrategy[list[Event]] = st.lists(
    st.tuples(st.sampled_from(["take", "refused", "went"]), st.floats(0, 10)), max_size=60
)


@given(events)
def test_whatever_happens_turns_are_in_order_and_the_rate_within_its_bounds(happened: list[Event]) -> None:
    bucket, now, last = Bucket(LAUNCHES, 0.0), 0.0, 0.0
    for what, later in happened:
        now += later
        match what:
            case "take":
                wait = bucket.take(now)
                assert 0 <= wait <= len(happened) / LAUNCHES.slowest
            case "refused":
                bucket.refused(now)
            case "went":
                bucket.went()
        assert LAUNCHES.slowest <= bucket.rate <= LAUNCHES.fastest
        last = now
    assert last == now


@given(steps=st.lists(st.sampled_from(["take", "take", "refused", "went"]), min_size=20, max_size=60))
def test_turns_that_are_given_ahead_never_come_in_heaps(steps: list[str]) -> None:
    """The rate changes while callers wait: each turn comes after the last one, by a turn's time at the rate of its moment."""
    bucket = Bucket(RATES, 0.0)
    for _ in range(int(RATES.burst)):
        bucket.take(0.0)
    last = 0.0
    for step in steps:
        match step:
            case "take":
                turn = bucket.take(0.0)
                assert turn - last == pytest.approx(1 / bucket.rate)
                last = turn
            case "refused":
                bucket.refused(0.0)
            case _:
                bucket.went()


def test_after_a_refusal_the_rate_is_soon_just_below_where_it_was_and_goes_slowly_beyond() -> None:
    bucket = Bucket(RATES, 0.0)
    bucket.refused(0.0)
    rates = []
    for _ in range(40):
        bucket.went()
        rates.append(bucket.rate)
    assert rates[7] > 0.9 * RATES.first
    assert rates[20] < 1.05 * RATES.first
    assert rates[39] > RATES.first


def test_a_pacer_waits_by_the_clock_it_is_given() -> None:
    clock = Clock()

    async def go() -> list[float]:
        pacer = Pacer(RATES, clock=clock, sleep=clock.sleep)
        times = []
        for _ in range(5):
            await pacer.turn()
            times.append(clock.now)
        return times

    assert anyio.run(go) == [0.0, 0.0, 0.0, 0.5, 1.0]


# Launches by it


def launched(ec2: FakeEc2, groups: int) -> tuple[Pace, float]:
    """That many groups of one member, launched beside each other by one pool worker; its pace then, and the seconds it took."""
    clock = Clock()

    async def go() -> Pace:
        pace = Pace(clock=clock, sleep=clock.sleep)
        how: dict[str, Any] = {"clock": clock, "sleep": clock.sleep, "draw": lambda: 0.0, "pace": pace}
        places = [Candidate("a", None, "on-demand")]
        async with anyio.create_task_group() as group:
            for number in range(groups):
                order = replace(ORDER, attempt=f"group-{number}")
                group.start_soon(Hunt(ec2, order, places, [Member(str(number), {})], **how).run)
        return pace

    return anyio.run(go), clock.now


@pytest.mark.fault("throttled")
def test_launches_beside_each_other_wait_for_their_turns_at_one_pace() -> None:
    """Nothing is refused, and still sixty-four calls don't go at once: EC2's bucket holds a few."""
    ec2 = FakeEc2()
    pace, seconds = launched(ec2, 64)
    assert (len(ec2.asks), len(ec2.running)) == (64, 64)
    assert seconds >= (64 - LAUNCHES.burst) / LAUNCHES.fastest
    assert pace.launches.rate > LAUNCHES.first


@pytest.mark.fault("throttled")
def test_a_launch_that_is_throttled_slows_the_next_ones_down() -> None:
    pace, _ = launched(FakeEc2([SLOW, SLOW, OK]), 1)
    assert pace.launches.rate < LAUNCHES.first
