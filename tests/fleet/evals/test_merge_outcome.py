"""How a merged eval ended, decided from counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai._eval.task.error import _should_eval_fail

from fleet.evals.outcome import AbsentSamples, decide, should_fail

FAILED = {"message": "ValueError('x')", "traceback": "Traceback …", "traceback_ansi": "Traceback …"}

rules = st.one_of(st.none(), st.booleans(), st.floats(0, 1), st.integers(0, 20), st.floats(0, 20))


@given(errors=st.integers(0, 30), total=st.integers(0, 30), rule=rules)
@pytest.mark.fault("sample-fails")
def test_the_rule_for_errors_is_inspects_own(errors: int, total: int, rule: bool | float | None) -> None:
    """Held against the function that a plain run ends with."""
    assert should_fail(errors, total, rule) == _should_eval_fail(errors, total, rule)


@given(errors=st.integers(0, 30), absent=st.integers(1, 30), rule=rules, goes_on=st.booleans())
def test_whatever_the_rule_an_eval_that_lacks_samples_is_an_error(
    errors: int, absent: int, rule: bool | float | None, goes_on: bool
) -> None:
    outcome = decide(
        {"fail_on_error": rule, "continue_on_fail": goes_on},
        total=60,
        errors=errors,
        first_error=FAILED if errors else None,
        absent=[AbsentSamples("000001-aa", absent, "no instance left")],
    )
    assert outcome.status == "error"
    assert outcome.error is not None
    assert f"{absent} of 60" in outcome.error["message"]


def test_the_message_names_three_jobs_and_the_traceback_names_all() -> None:
    absent = [AbsentSamples(f"00000{number}-aa", 2, f"reason {number}") for number in range(1, 6)]
    error = decide({}, total=20, errors=1, first_error=FAILED, absent=absent).error
    assert error is not None
    assert error["message"] == (
        "10 of 20 samples are missing (inspect eval-retry runs them): job 000001-aa (2 samples): reason 1; "
        "job 000002-aa (2 samples): reason 2; job 000003-aa (2 samples): reason 3; and 2 more jobs"
    )
    assert "job 000005-aa (2 samples): reason 5" in error["traceback"]
    assert "Traceback …" in error["traceback"], "a sample's own failure isn't lost behind the missing ones"
