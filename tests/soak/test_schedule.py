"""The storm is repeatable, complete, and of the size that was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.schedule import FIRST, LAST, Kind, chosen, storm


@given(seed=st.integers(0, 2**32), count=st.integers(len(Kind), 300))
def test_a_storm_has_its_size_every_kind_and_its_order(seed: int, count: int) -> None:
    strikes = storm(seed, count)
    assert len(strikes) == count
    assert {strike.kind for strike in strikes} == set(Kind)
    moments = [strike.at for strike in strikes]
    assert moments == sorted(moments)
    assert moments[0] >= FIRST
    assert moments[-1] <= LAST


def test_a_seed_gives_the_same_storm_again_and_another_seed_another() -> None:
    assert storm(7, 200) == storm(7, 200)
    assert storm(7, 200) != storm(8, 200)


def test_too_few_faults_for_all_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="can't be of"):
        storm(1, len(Kind) - 1)


@given(draw=st.floats(0, 1), count=st.integers(1, 9))
def test_a_draw_chooses_one_of_the_targets(draw: float, count: int) -> None:
    assert chosen(range(count), draw) in range(count)
