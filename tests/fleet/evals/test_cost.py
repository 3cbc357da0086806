"""Estimates say what they know, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.prices import Price
from fleet.evals.cost import CostUnknown, Estimate, check_limit, estimate, workers_for
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
