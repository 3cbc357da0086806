"""What other sizes of an instance would come to: which are looked at, and what is said of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.prices import Price
from fleet.evals.forecast import FleetModel, forecasts, knee, launched, workers_for
from fleet.evals.instance_sizes import InstanceKind, near, size_forecasts

C7I = {
    "c7i.large": 2,
    "c7i.xlarge": 4,
    "c7i.2xlarge": 8,
    "c7i.4xlarge": 16,
    "c7i.8xlarge": 32,
    "c7i.12xlarge": 48,
    "c7i.metal-8xl": 32,
}


@pytest.mark.parametrize(
    ("instance_type", "sizes"),
    [
        ("c7i.4xlarge", ["c7i.xlarge", "c7i.2xlarge", "c7i.4xlarge", "c7i.8xlarge"]),
        ("c7i.large", ["c7i.large", "c7i.xlarge"]),
        ("c7i.metal-8xl", ["c7i.2xlarge", "c7i.4xlarge", "c7i.metal-8xl"]),
        ("c9z.large", []),
    ],
)
def test_the_sizes_that_are_worth_a_look_are_steps_from_the_one_that_was_asked_for(
    instance_type: str, sizes: list[str]
) -> None:
    assert near(C7I, instance_type) == sizes


def test_a_smaller_instance_that_can_run_as_many_jobs_costs_less_and_takes_as_long() -> None:
    """32 jobs at a time need no more than 8 vCPUs."""
    kinds = [InstanceKind(Price(name, "on-demand", 0.05 * C7I[name]), C7I[name]) for name in near(C7I, "c7i.4xlarge")]
    found = size_forecasts([600.0] * 320, kinds, max_workers=24, concurrency=32, model=FleetModel(32, settled=32))
    assert [one.slots for one in found] == [16, 32, 32, 32]
    _, half, own, double = found
    assert half.fleet == own.fleet == double.fleet
    assert half.cost is not None
    assert own.cost == pytest.approx(2 * half.cost)
    assert double.cost == pytest.approx(4 * half.cost)


def test_what_a_size_costs_is_unknown_where_aws_does_not_say() -> None:
    (found,) = size_forecasts(
        [60.0], [InstanceKind(Price("c7i.large", "spot", None), 2)], max_workers=1, concurrency=8, model=FleetModel(8)
    )
    assert (found.slots, found.cost) == (8, None)


@given(
    st.lists(st.floats(1, 4_000), min_size=1, max_size=300),
    st.integers(1, 24),
    st.builds(FleetModel, st.integers(1, 32), st.integers(0, 8), st.sampled_from([0.0, 0.05])),
)
def test_the_fleet_that_is_launched_is_the_knee(seconds: list[float], most: int, model: FleetModel) -> None:
    """Also where not every size is looked at."""
    usual = workers_for(len(seconds), max_workers=most, concurrency=model.most)
    assert launched(seconds, most, model) == knee(forecasts(seconds, most, model, usual=usual), usual=usual)
