"""What other sizes of an instance would come to: which are looked at, and what is said of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.prices import Price
from fleet.evals.forecast import FleetModel, forecasts, knee, launched, workers_for
from fleet.evals.instance_sizes import InstanceKind, near, size_forecasts, to_compare

C7I = {
    "c7i.large": 2,
    "c7i.xlarge": 4,
    "c7i.2xlarge": 8,
    "c7i.4xlarge": 16,
    "c7i.8xlarge": 32,
    "c7i.12xlarge": 48,
    "c7i.metal-8xl": 32,
}
T2 = {"t2.micro": 1, "t2.small": 1, "t2.medium": 2, "t2.large": 2, "t2.xlarge": 4}
"""Types with as many vCPUs differ in memory."""


@pytest.mark.parametrize(
    ("instance_type", "sizes"),
    [
        ("c7i.4xlarge", ["c7i.xlarge", "c7i.2xlarge", "c7i.4xlarge", "c7i.8xlarge"]),
        ("c7i.large", ["c7i.large", "c7i.xlarge"]),
        ("c7i.metal-8xl", ["c7i.2xlarge", "c7i.4xlarge", "c7i.metal-8xl"]),
        ("c9z.large", []),
        ("t2.medium", ["t2.medium", "t2.xlarge"]),
    ],
)
def test_the_sizes_that_are_worth_a_look_are_steps_from_the_one_that_was_asked_for(
    instance_type: str, sizes: list[str]
) -> None:
    assert near(T2 if instance_type in T2 else C7I, instance_type) == sizes


def test_compared_is_what_has_a_price_on_the_market_that_is_asked_for() -> None:
    prices = [Price("c7i.large", on, 0.1) for on in ("spot", "on-demand")] + [Price("m7i.large", "spot", 0.1)]
    prices += [Price("c7i.xlarge", "spot", None), Price("c7i.8xlarge", "spot", 1.0)]
    found = to_compare(prices, C7I, "c7i.large", "spot")
    assert found == [InstanceKind(prices[0], 2), InstanceKind(prices[3], 4)]
    assert to_compare(prices, C7I, "c7i.large", "on-demand") == [InstanceKind(prices[1], 2)]
    assert to_compare(prices, {}, "c7i.large", "spot") == []


@pytest.mark.parametrize(
    ("settled", "slots"),
    [
        (0, [8, 16, 32, 32]),
        (16, [8, 16, 32, 32]),  # all that the one that was asked for can have: nothing else kept it down
        (6, [6, 6, 6, 6]),  # a provider did
    ],
)
def test_where_slots_had_settled_counts_for_other_sizes_if_something_else_kept_them_down(
    settled: int, slots: list[int]
) -> None:
    kinds = [InstanceKind(Price(name, "spot", None), C7I[name]) for name in near(C7I, "c7i.2xlarge")]
    assert [kind.vcpus for kind in kinds] == [2, 4, 8, 16]
    model = FleetModel(16, settled=settled)
    found = size_forecasts([60.0] * 9, kinds, max_workers=4, concurrency=32, model=model)
    assert [one.slots for one in found] == slots


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
