"""What fleets of several sizes would come to, and which of them is launched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.forecast import (
    AS_FAST,
    BOOT_S,
    LAST_S,
    SLOWEST,
    TOLERANCE,
    WORTH_S,
    FleetModel,
    Forecast,
    forecast,
    forecasts,
    knee,
    most_slots,
)

jobs = st.lists(st.floats(1, 20_000), min_size=1, max_size=60)
models = st.builds(FleetModel, most=st.integers(1, 40), settled=st.sampled_from([0, 1, 8, 32]), loss=st.floats(0, 0.3))


@given(jobs, st.integers(1, 40), models)
def test_no_fleet_is_larger_than_a_person_allows_or_than_its_jobs(
    took: list[float], most: int, model: FleetModel
) -> None:
    sizes = [one.instances for one in forecasts(took, most, model, usual=1)]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] == min(most, len(took))


@given(jobs, st.integers(1, 40), models)
def test_no_forecast_promises_what_can_not_be(took: list[float], instances: int, model: FleetModel) -> None:
    """Not sooner than the longest job, or than all slots in use throughout; not cheaper than the work itself."""
    found = forecast(took, instances, model)
    work = sum(took)
    assert found.seconds >= (BOOT_S + max(max(took), work / (instances * model.most))) * 0.999
    assert found.billed >= (work / model.most + BOOT_S) * 0.999
    longer = [one * 2 for one in took]
    assert forecast(longer, instances, model).billed >= found.billed * 0.999


@given(jobs, st.integers(1, 40), models, st.data())
def test_the_fleet_that_is_launched_is_the_usual_one_or_within_the_tolerance_and_as_fast_as_any_that_is(
    took: list[float], most: int, model: FleetModel, data: st.DataObject
) -> None:
    usual = data.draw(st.integers(1, min(most, len(took))))
    fleets = forecasts(took, most, model, usual=usual)
    taken = knee(fleets, usual=usual)
    (known,) = [one for one in fleets if one.instances == usual]
    assert taken.instances <= most
    assert taken.seconds <= known.seconds * SLOWEST
    if taken == known and taken.billed <= min(one.billed for one in fleets) + WORTH_S:
        return
    quick = [one for one in fleets if one.seconds <= known.seconds * SLOWEST]
    dearest = min(one.billed for one in quick) * (1 + TOLERANCE)
    assert taken.billed <= dearest
    assert all(taken.seconds <= one.seconds * AS_FAST for one in quick if one.billed <= dearest)


def test_a_fleet_that_would_wait_for_a_long_job_is_launched_smaller() -> None:
    """Time is what the longest job takes, whatever waits beside it."""
    took = [14_000.0] * 5 + [100.0] * 8000
    fleets = forecasts(took, 24, FleetModel(32, settled=32), usual=24)
    taken = knee(fleets, usual=24)
    assert taken.instances < 6
    assert taken.seconds <= fleets[-1].seconds * AS_FAST


def test_what_is_at_stake_in_a_small_run_changes_nothing() -> None:
    fleets = forecasts([5.0] * 40, 4, FleetModel(10), usual=4)
    assert knee(fleets, usual=4).instances == 4


def test_equal_jobs_on_one_instance_take_their_turns() -> None:
    """Forty jobs on ten slots that stay ten: four turns, a boot, and the last look at the queue isn't waited for."""
    assert forecast([100.0] * 40, 1, FleetModel(10)) == Forecast(1, BOOT_S + 400, BOOT_S + 400)


def test_an_instance_is_paid_until_no_job_is_left_for_it() -> None:
    found = forecast([1000.0, 10.0], 2, FleetModel(1))
    assert found.billed == pytest.approx((BOOT_S + 1000) + (BOOT_S + 10 + LAST_S))


def test_slots_that_double_are_there_later_than_settled_ones() -> None:
    assert FleetModel(32).slot_times() == [BOOT_S] * 10 + [BOOT_S + 20] * 10 + [BOOT_S + 40] * 12
    assert FleetModel(32, settled=24).slot_times() == [BOOT_S] * 24


def test_long_jobs_lie_together_so_that_other_instances_end() -> None:
    """A queue that is handed out longest first to one instance after the other packs like with like."""
    found = forecast([10_000.0] * 4 + [10.0] * 4, 2, FleetModel(4, settled=4))
    assert found.billed == pytest.approx((BOOT_S + 10_000) + (BOOT_S + 10 + LAST_S))


def test_an_instance_runs_as_many_jobs_at_a_time_as_its_processors_can() -> None:
    assert most_slots(32, [16]) == 32
    assert most_slots(32, [16, 2]) == 8
    assert most_slots(3, [16]) == 3
    assert most_slots(32, []) == 32
