"""Estimates say what they know, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.prices import Price
from fleet.evals.cost import CostUnknown, Estimate, check_limit, estimate
from fleet.evals.forecast import workers_for
from fleet.evals.instance_sizes import InstanceKind
from fleet.evals.progress import EvalTally


@given(st.integers(0, 10_000), st.integers(1, 100), st.integers(1, 64))
def test_a_fleet_is_as_large_as_its_work_and_no_larger(jobs: int, most: int, concurrency: int) -> None:
    workers = workers_for(jobs, max_workers=most, concurrency=concurrency)
    assert workers <= most
    assert (workers == 0) == (jobs == 0)
    assert workers <= max(jobs, 0)


def an_offer(hourly: float | None, done: int = 0, *, others: Sequence[Price] = ()) -> Estimate:
    tally = EvalTally(eval_id="e", task="elements", model="scripted/chemist", jobs={f"j{n}": 2 for n in range(40)})
    tally.done = {f"j{n}" for n in range(done)}
    return estimate(
        [tally],
        prices=[Price("c7i.4xlarge", "on-demand", hourly), *others],
        region="us-east-1",
        max_workers=24,
        concurrency=32,
        max_hours=24,
    )


def an_estimate(hourly: float | None, done: int = 0) -> str:
    offer = an_offer(hourly, done)
    assert offer.line() in offer.markdown()
    return offer.line()


def test_an_estimate_is_one_line() -> None:
    assert an_estimate(0.714) == "80 samples on 4 × c7i.4xlarge (on-demand, us-east-1), about $2.86 an hour"


def test_an_unknown_price_is_said_to_be_unknown() -> None:
    assert an_estimate(None).endswith("price unknown")


def test_all_that_the_instances_may_be_is_in_the_estimate() -> None:
    """Spot falls back to on-demand, and a type to the next: the first one's price alone would promise too little."""
    offer = replace(
        an_offer(None),
        prices=(
            Price("c7i.4xlarge", "spot", 0.25),
            Price("m7i.4xlarge", "spot", 0.3),
            Price("c7i.4xlarge", "on-demand", 0.714),
            Price("m7i.4xlarge", "on-demand", 0.8),
        ),
    )
    assert offer.line() == (
        "80 samples on 4 × c7i.4xlarge or m7i.4xlarge (spot, else on-demand, us-east-1), $1.00 to $3.20 an hour"
    )
    assert "| price of c7i.4xlarge (on-demand), an instance-hour | $0.7140 |" in offer.markdown()
    assert "can cost (each powers off after 24 h) | $76.80 |" in offer.markdown()


def test_a_price_that_is_not_known_is_no_small_one() -> None:
    offer = an_offer(0.714, others=[Price("m7i.4xlarge", "on-demand", None)])
    assert offer.line().endswith("about $2.86 an hour; the price of m7i.4xlarge (on-demand) is unknown")
    assert "can cost (each powers off after 24 h) | unknown |" in offer.markdown()


def test_what_is_done_already_is_not_paid_again() -> None:
    assert an_estimate(1.0, done=30).startswith("20 samples on 1 ×")


def test_nothing_to_run_needs_no_instance() -> None:
    assert an_estimate(1.0, done=40).startswith("0 samples on 0 ×")


@pytest.mark.fault("limit-reached")
def test_a_limit_that_nobody_could_hold_is_refused_before_the_launch() -> None:
    with pytest.raises(CostUnknown, match=r"what an instance of type c7i\.4xlarge \(on-demand\) costs in us-east-1"):
        check_limit(an_offer(None), 5.0)
    with pytest.raises(CostUnknown, match=r"m7i\.4xlarge \(spot\)"):  # whichever of them is launched, its cost counts
        check_limit(an_offer(1.0, others=[Price("m7i.4xlarge", "spot", None)]), 5.0)
    for offer, limit in ((an_offer(None), None), (an_offer(1.0), 5.0), (an_offer(None, done=40), 5.0)):
        check_limit(offer, limit)


def a_known_offer(known: int = 40, **options: Any) -> Estimate:
    """Forty jobs of ten minutes; of the first `known` of them it is known."""
    tally = EvalTally(eval_id="e", task="elements", model="scripted/chemist", jobs={f"j{n}": 2 for n in range(40)})
    return estimate(
        [tally],
        prices=[Price("c7i.4xlarge", "on-demand", 0.72), Price("m7i.4xlarge", "on-demand", None)],
        region="us-east-1",
        max_workers=24,
        max_hours=24,
        expected={"e": {f"j{n}": 600.0 for n in range(known)}},
        **{"concurrency": 8, "settled": 8, **options},
    )


def test_with_history_the_estimate_has_a_table_of_fleet_sizes_and_marks_the_one_that_is_launched() -> None:
    offer = a_known_offer()
    assert offer.workers == 5
    assert offer.line().endswith("; about 12 min by earlier runs")
    assert [row[0] for row in offer.table()] == ["instances", *(str(one.instances) for one in offer.fleets)]
    (marked,) = [row for row in offer.table() if row[-1]]
    assert marked == ["5", "12 min", "1.0", "$0.69", "unknown", "this one"]
    assert offer.lines()[0] == offer.line()
    assert next(line for line in offer.lines() if "this one" in line).split()[:2] == ["5", "12"]
    assert f"| {' | '.join(marked)} |" in offer.markdown()


KINDS = [
    InstanceKind(Price("c7i.large", "on-demand", 0.09), 2),
    InstanceKind(Price("c7i.2xlarge", "on-demand", 0.36), 8),
    InstanceKind(Price("c7i.4xlarge", "on-demand", 0.72), 16),
    InstanceKind(Price("c7i.8xlarge", "on-demand", None), 32),
]


def test_with_history_the_estimate_has_a_table_of_instance_sizes_and_marks_what_costs_least() -> None:
    offer = a_known_offer(kinds=KINDS, vcpus=[16])
    head, *rows = offer.size_table()
    assert head == ["instance", "jobs at a time", "instances", "time", "instance-hours", "cost", ""]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("c7i.large (on-demand)", "8", "costs least"),
        ("c7i.2xlarge (on-demand)", "8", ""),
        ("c7i.4xlarge (on-demand)", "8", "this one"),
        ("c7i.8xlarge (on-demand)", "8", ""),
    ]
    assert rows[2][2:6] == ["5", "12 min", "1.0", "$0.69"], "as in the table of fleet sizes"
    assert rows[3][5] == "unknown"
    assert "#### Instance sizes" in offer.markdown()
    assert f"| {' | '.join(rows[0])} |" in offer.markdown()
    assert offer.lines()[-2].split()[:2] == ["c7i.8xlarge", "(on-demand)"]
    assert "isn't looked at" in offer.lines()[-1]
    assert a_known_offer(39, kinds=KINDS).size_table() == [], "not without a history of every job"
    assert a_known_offer(kinds=KINDS[2:3]).size_table() == [], "not of one size alone"
    fallback = a_known_offer(kinds=KINDS, vcpus=[16, 1])
    assert fallback.table()
    assert fallback.size_table() == [], "not where the fleet is reckoned with a fallback's vCPUs"


@pytest.mark.parametrize(
    ("hourly", "marks"),
    [
        ([0.5, 0.5, 0.5], ["", "this one, costs least", ""]),
        ([0.4, 0.5, 0.4], ["costs least", "this one", ""]),
        ([None, None, 0.5], ["", "this one", "costs least"]),
        ([None, None, None], ["", "this one", ""]),
    ],
)
def test_one_size_costs_least_and_of_equals_the_one_that_was_asked_for(
    hourly: list[float | None], marks: list[str]
) -> None:
    names = ["c7i.2xlarge", "c7i.4xlarge", "c7i.8xlarge"]
    kinds = [InstanceKind(Price(name, "on-demand", one), 16) for name, one in zip(names, hourly, strict=True)]
    assert [row[-1] for row in a_known_offer(kinds=kinds).size_table()[1:]] == marks


@pytest.mark.parametrize("known", [0, 39])
def test_an_estimate_invents_no_numbers(known: int) -> None:
    """Where nothing, or not everything, is known of the jobs, it is what it is without history."""
    offer = a_known_offer(known)
    assert (offer.fleets, offer.table(), offer.lines()) == ((), [], [offer.line()])
    assert offer.workers == workers_for(40, max_workers=24, concurrency=8)
    assert "earlier runs" not in offer.markdown()


def test_only_spot_instances_are_expected_to_be_lost() -> None:
    spot = [Price("c7i.4xlarge", "spot", 0.3)]
    tally = EvalTally(eval_id="e", task="t", model="m", jobs={"j": 1})
    billed = [
        estimate(
            [tally], prices=prices, region="r", max_workers=1, concurrency=8, max_hours=1, expected={"e": {"j": 6e3}}
        )
        .fleets[0]
        .billed
        for prices in (spot, [Price("c7i.4xlarge", "on-demand", 0.3)])
    ]
    assert billed[0] > billed[1]
