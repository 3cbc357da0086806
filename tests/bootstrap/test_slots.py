from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.slots import LITTLE, ROUND_S, Round, Slots, first_slots
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
    limited = slots.after_rate_limit()
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
def test_the_first_rate_limit_halves_and_a_burst_of_them_does_no_more() -> None:
    slots = Slots(most=32, now=32)
    for _ in range(3):
        slots = slots.after_rate_limit()
    assert slots.now == 16
    assert slots.after_clean_job() == slots, "from here on rounds decide"


@pytest.mark.fault("rate-limit")
@pytest.mark.parametrize(
    ("share", "now"),
    [
        pytest.param(0.0, 20, id="no wait: as many as before, or more"),
        pytest.param(0.015, 20, id="a little: as it should be"),
        pytest.param(0.1, 14, id="a tenth: that, and room for the provider's bucket to fill"),
        pytest.param(0.5, 6, id="half"),
        pytest.param(3.0, 5, id="waits longer than the round: a quarter stays"),
    ],
)
def test_a_round_cuts_by_what_was_waited(share: float, now: int) -> None:
    assert Slots(most=32, now=20, level=20.0).after_round(share, full=True, draw=0.0).now == now


@pytest.mark.fault("rate-limit")
def test_quiet_rounds_come_back_to_the_level_quickly_and_go_beyond_it_slowly() -> None:
    slots, seen = Slots(most=400, now=100, level=200.0), []
    for _ in range(16):
        slots = slots.after_round(0.0, full=True, draw=0.5)
        seen.append(slots.now)
    assert seen[4] > 180
    assert max(seen[:10]) < 210
    assert seen[15] > 230
    assert slots.after_round(0.0, full=False, draw=0.5) == slots, "slots that aren't used say nothing"


def test_few_slots_are_rounded_by_chance() -> None:
    """A fleet of a hundred instances with four slots each goes up by a few, not by a hundred."""
    up = [Slots(most=32, now=4, level=4.0).after_round(0.0, full=True, draw=number / 100).now for number in range(100)]
    assert sum(up) == 404


def test_a_round_is_judged_after_its_time_and_by_what_was_in_use() -> None:
    round_ = Round()
    round_.waited = 6.0
    round_.pass_by(ROUND_S - 1, running=4)
    assert round_.share is None
    round_.pass_by(1, running=4)
    assert round_.share == pytest.approx(6 / (4 * ROUND_S))
    idle = Round()
    idle.pass_by(2 * ROUND_S, running=0)
    assert idle.share is None


def test_a_wait_counts_for_no_more_than_a_round() -> None:
    """Inspect doubles waits up to half an hour: one sample's says nothing of the others."""
    round_ = Round()
    round_.wait(1800.0)
    round_.wait(3.0)
    round_.pass_by(ROUND_S, running=10)
    assert round_.share == pytest.approx((ROUND_S + 3) / (10 * ROUND_S))


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
    first=st.integers(1, 64),
    shares=st.lists(st.tuples(st.floats(0, 5), st.booleans(), st.floats(0, 0.999)), max_size=50),
)
@pytest.mark.fault("rate-limit")
def test_slots_stay_within_one_and_the_most_and_waits_never_add_any(
    most: int, first: int, shares: list[tuple[float, bool, float]]
) -> None:
    slots = Slots(most=most, now=min(first, most)).after_rate_limit()
    for share, full, draw in shares:
        before, slots = slots, slots.after_round(share, full=full, draw=draw)
        assert 1 <= slots.now <= most
        if share >= LITTLE:
            assert slots.now <= before.now
