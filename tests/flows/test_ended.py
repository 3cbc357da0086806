"""What a run comes to, as the state of its flow run and as the command's exit code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import httpx
import pytest
from prefect.exceptions import ObjectNotFound

from blocks.ec2_config import Ec2Config
from fleet.evals.report import EvalReport, RunReport
from fleet.pool import runs
from flows import run
from flows import run_eval as room
from flows.run_eval import as_asked, ended

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


@pytest.fixture
def prefect_says(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Whether the run is being cancelled, or what asking raises."""
    said: dict[str, Any] = {"cancelled": False}

    def is_being_cancelled(run: str) -> bool:
        assert run == "r"
        if isinstance(said["cancelled"], Exception):
            raise said["cancelled"]
        return bool(said["cancelled"])

    monkeypatch.setattr(runs, "is_being_cancelled", is_being_cancelled)
    monkeypatch.setattr(run, "runtime", SimpleNamespace(flow_run=SimpleNamespace(id="r")))
    return said


@pytest.mark.fault("cancelled")
def test_a_run_that_was_cancelled_while_it_collected_ends_as_cancelled(prefect_says: dict[str, Any]) -> None:
    """Prefect refuses any other end of a run that is Cancelling."""
    prefect_says["cancelled"] = True
    came = as_asked(ended(a_report("success")))
    assert came.type.value == "CANCELLED"
    assert came.data == a_report("success")


@pytest.mark.parametrize("said", [False, httpx.ConnectError("no"), ObjectNotFound(Exception())])
def test_a_run_that_nobody_cancelled_ends_as_it_ended(prefect_says: dict[str, Any], said: object) -> None:
    prefect_says["cancelled"] = said
    came = ended(a_report("incomplete"))
    assert as_asked(came) is came


@pytest.mark.fault("cancelled")
def test_a_run_that_fails_when_it_was_cancelled_is_cancelled_and_says_of_what(
    prefect_says: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("the plan is bad")

    monkeypatch.setattr(room, "whole_run", fails)
    with pytest.raises(ValueError, match="the plan is bad"):
        room.run_eval.fn(None, Ec2Config())  # type: ignore[arg-type]
    prefect_says["cancelled"] = True
    came = room.run_eval.fn(None, Ec2Config())  # type: ignore[arg-type]
    assert (came.type.value, came.message) == ("CANCELLED", "cancelled by a person; it had failed: the plan is bad")
