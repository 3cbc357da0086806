from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.slots import HALVE_EVERY, Slots, first_slots


@pytest.mark.parametrize(
    ("concurrency", "cpus", "visible", "most", "now"),
    [
        pytest.param(32, 16, None, 32, 10, id="starts at ten"),
        pytest.param(4, 16, None, 4, 4, id="never above what the person allows"),
        pytest.param(32, 2, None, 8, 8, id="four a CPU"),
        pytest.param(32, 16, 3, 32, 3, id="no more than jobs that wait"),
        pytest.param(32, 16, 0, 32, 1, id="one at least"),
        pytest.param(1, 1, 500, 1, 1, id="one only"),
    ],
)
def test_where_a_worker_begins(concurrency: int, cpus: int, visible: int | None, most: int, now: int) -> None:
    assert first_slots(concurrency, cpus=cpus, visible=visible) == Slots(most=most, now=now)


def test_a_burst_of_rate_limits_halves_once_a_minute() -> None:
    slots = Slots(most=32, now=32)
    for at in (0.0, 1.0, 59.9):
        slots = slots.after_rate_limit(at)
    assert slots.now == 16
    assert slots.after_rate_limit(HALVE_EVERY).now == 8


def test_clean_jobs_win_back_one_slot_each_up_to_the_most() -> None:
    slots = Slots(most=6, now=4)
    seen = []
    for _ in range(4):
        slots = slots.after_clean_job()
        seen.append(slots.now)
    assert seen == [5, 6, 6, 6]


def test_running_jobs_outlive_a_halving() -> None:
    assert Slots(most=8, now=2).free(running=5) == 0
    assert Slots(most=8, now=6).free(running=5) == 1


@given(
    most=st.integers(1, 64),
    steps=st.lists(st.one_of(st.none(), st.floats(0, 100, allow_nan=False)), max_size=50),
)
def test_slots_stay_within_one_and_the_most_and_halvings_keep_their_distance(
    most: int, steps: list[float | None]
) -> None:
    slots, now, halvings = Slots(most=most, now=min(10, most)), 0.0, []
    for step in steps:
        before = slots
        if step is None:
            slots = slots.after_clean_job()
        else:
            now += step
            slots = slots.after_rate_limit(now)
            if slots.halved_at != before.halved_at:
                halvings.append(now)
        assert 1 <= slots.now <= most
    assert all(later - earlier >= HALVE_EVERY for earlier, later in itertools.pairwise(halvings))
