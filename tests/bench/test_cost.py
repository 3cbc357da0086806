"""The simulated fleet holds what the figure stands on, with few jobs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.evals.durations import DurationHistory
from tests.bench.cost import DISTRIBUTIONS, INSTANCES, SLOTS, Chance, compare, manifest_of, ours


@given(st.lists(st.floats(1, 3_600), min_size=1, max_size=300), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_a_fleet_of_any_jobs_does_each_of_them_once_and_bills_no_less_than_the_work(
    took: list[float], seed: int
) -> None:
    """`Fleet` itself ends the benchmark where a job is done twice or never, or an instance is one too many."""
    bill, workers = ours(manifest_of(len(took)), took, DurationHistory(), Chance(seed))
    assert 1 <= workers <= INSTANCES
    assert bill.billed >= sum(took) / SLOTS
    assert bill.took >= max(took)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_history_makes_a_run_cheaper(name: str) -> None:
    found = compare(manifest_of(1_500), DISTRIBUTIONS[name], seed=7)
    assert found.ideal < found.known.billed < min(found.plain.billed, found.cold.billed)
