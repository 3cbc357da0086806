from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.slots import HALVE_EVERY, Slots, first_slots
from fleet.aws.queues import Depth


def depth(waiting: int, leased: int = 0) -> Depth:
    return Depth(waiting=waiting, leased=leased, delayed=0)


@pytest.mark.parametrize(
    ("concurrency", "cpus", "jobs", "most", "now"),
    [
        pytest.param(32, 16, None, 32, 10, id="starts at ten"),
        pytest.param(4, 16, None, 4, 4, id="never above what the person allows"),
        pytest.param(32, 2, None, 8, 8, id="four a CPU"),
        pytest.param(32, 16, depth(3), 32, 3, id="no more than jobs that wait"),
        pytest.param(32, 16, depth(0), 32, 10, id="a queue that looks empty says nothing"),
        pytest.param(32, 16, depth(0, 3), 32, 10, id="nor one whose jobs are all held: an instance may be about to go"),
        pytest.param(1, 1, depth(500), 1, 1, id="one only"),
    ],
)
def test_where_a_worker_begins(concurrency: int, cpus: int, jobs: Depth | None, most: int, now: int) -> None:
    assert first_slots(concurrency, cpus=cpus, jobs=jobs) == Slots(most=most, now=now)


@pytest.mark.parametrize(
    ("jobs", "fleet_size", "now"),
    [
        pytest.param(depth(8), 4, 2, id="the first of four instances leaves six of eight jobs"),
        pytest.param(depth(2, 6), 4, 2, id="so does the last, which finds two"),
        pytest.param(depth(1, 6), 4, 1, id="no more than wait"),
        pytest.param(depth(3), 8, 1, id="one at least"),
        pytest.param(depth(9), 4, 3, id="rounded up: none is left over"),
        pytest.param(depth(1000), 24, 10, id="many jobs are no reason to begin with more than ten"),
    ],
)
def test_with_few_jobs_an_instance_begins_with_its_share(jobs: Depth, fleet_size: int, now: int) -> None:
    assert first_slots(32, cpus=16, jobs=jobs, fleet_size=fleet_size) == Slots(most=32, now=now)


def test_a_worker_begins_where_the_last_run_had_settled() -> None:
    assert first_slots(32, cpus=16, settled=24) == Slots(most=32, now=24, level_known=True)
    assert first_slots(8, cpus=16, settled=24).now == 8
    assert first_slots(32, cpus=16, jobs=depth(8), fleet_size=4, settled=24).now == 2


def test_slots_in_full_use_double_until_something_says_how_many_are_right() -> None:
    """Long jobs tell of no success for hours: what is paid for is used all the same."""
    slots, seen = first_slots(32, cpus=16), []
    for _ in range(3):
        slots = slots.after_full_use()
        seen.append(slots.now)
    assert seen == [20, 32, 32]
    limited = slots.after_rate_limit(0.0)
    short = slots.after_shortage(running=8)
    settled = first_slots(32, cpus=16, settled=16)
    for known in (limited, short, settled):
        assert known.after_full_use() == known


@given(jobs=st.integers(1, 500), fleet_size=st.integers(1, 40))
def test_shares_leave_no_job_for_which_there_is_a_slot(jobs: int, fleet_size: int) -> None:
    """Instances that come one after the other, before any job is done."""
    taken = 0
    for _ in range(fleet_size):
        if taken < jobs:
            taken += first_slots(32, cpus=16, jobs=depth(jobs - taken, taken), fleet_size=fleet_size).now
    assert taken == min(jobs, 10 * fleet_size)


@pytest.mark.fault("rate-limit")
def test_a_burst_of_rate_limits_halves_once_a_minute() -> None:
    slots = Slots(most=32, now=32)
    for at in (0.0, 1.0, 59.9):
        slots = slots.after_rate_limit(at)
    assert slots.now == 16
    assert slots.after_rate_limit(HALVE_EVERY).now == 8


@pytest.mark.fault("rate-limit")
def test_clean_jobs_win_back_one_slot_each_up_to_the_most() -> None:
    slots = Slots(most=6, now=4)
    seen = []
    for _ in range(4):
        slots = slots.after_clean_job()
        seen.append(slots.now)
    assert seen == [5, 6, 6, 6]


@pytest.mark.parametrize(
    ("before", "running", "after"),
    [
        pytest.param(Slots(most=32, now=20), 20, Slots(most=15, now=10), id="what ran is what didn't fit"),
        pytest.param(Slots(most=32, now=20), 4, Slots(most=3, now=2), id="few large jobs: few slots"),
        pytest.param(Slots(most=8, now=3), 8, Slots(most=6, now=3), id="never more than before"),
        pytest.param(Slots(most=8, now=8), 1, Slots(most=1, now=1), id="one at least"),
        pytest.param(Slots(most=8, now=8), 0, Slots(most=8, now=1), id="with none at work nothing says how many fit"),
    ],
)
def test_a_shortage_takes_slots_for_good(before: Slots, running: int, after: Slots) -> None:
    assert before.after_shortage(running) == replace(after, level_known=True)


def test_running_jobs_outlive_a_halving() -> None:
    assert Slots(most=8, now=2).free(running=5) == 0
    assert Slots(most=8, now=6).free(running=5) == 1


@given(
    most=st.integers(1, 64),
    steps=st.lists(st.one_of(st.none(), st.floats(0, 100, allow_nan=False)), max_size=50),
)
@pytest.mark.fault("rate-limit")
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
