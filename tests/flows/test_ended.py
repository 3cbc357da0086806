"""What a run comes to, as the state of its flow run and as the command's exit code."""

from __future__ import annotations

from typing import Literal

import pytest

from fleet.evals.report import EvalReport, RunReport
from flows.run_eval import ended

Outcome = Literal["success", "incomplete", "error", "estimated", "declined"]


def a_report(outcome: Outcome) -> RunReport:
    one = EvalReport(
        eval_id="e" * 20,
        task="t",
        model="m",
        status="success",
        log="l.eval",
        stored="s3://b/l.eval",
        samples=24,
        samples_done=20 if outcome == "incomplete" else 24,
        errors=0,
        missing=4 if outcome == "incomplete" else 0,
    )
    return RunReport(run="r", outcome=outcome, why="no instance is left", evals=[one])


@pytest.mark.parametrize(
    ("outcome", "state", "code"),
    [
        ("success", "COMPLETED", 0),
        ("estimated", "COMPLETED", 0),
        ("declined", "COMPLETED", 1),
        ("incomplete", "FAILED", 3),
        ("error", "FAILED", 1),
    ],
)
def test_only_a_run_that_has_everything_is_green(outcome: Outcome, state: str, code: int) -> None:
    """The state is what automations and people look at; the report comes along all the same, so that the command can say it."""
    came = ended(a_report(outcome))
    assert came.type.value == state
    assert came.message == a_report(outcome).line()
    report = came.data
    assert isinstance(report, RunReport)
    assert report.exit_code == code
