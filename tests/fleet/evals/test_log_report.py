"""What a log that Inspect wrote whole says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.evals.eval_file import EvalFileUnreadable
from fleet.evals.log_report import log_report, planned_samples, read_header
from fleet.evals.report import Metric
from tests.hawk_server import eval_log


def a_log(folder: Path, **facts: object) -> str:
    path = folder / "a.eval"
    path.write_bytes(eval_log("pkg/task", "m/m", **facts))  # type: ignore[arg-type]
    return str(path)


def test_a_log_with_success_is_told_by_its_results(tmp_path: Path) -> None:
    log = a_log(tmp_path, samples=3, accuracy=0.5)
    one = log_report(read_header(log), task="pkg/task", model="m/m", status="success", log=log, error="")
    assert (one.status, one.why, one.log) == ("success", "", log)
    assert (one.samples, one.samples_done, one.errors, one.missing) == (3, 3, 0, 0)
    assert one.metrics == [Metric(scorer="match", name="accuracy", value=0.5)]


@pytest.mark.parametrize(("error", "why"), [("ValueError: no", "ValueError: no"), ("", "cancelled")])
def test_a_log_without_success_says_why_and_what_is_missing(tmp_path: Path, error: str, why: str) -> None:
    log = a_log(tmp_path, status="cancelled", samples=4, done=3, errors=1)
    one = log_report(read_header(log), task="t", model="m", status="cancelled", log=log, error=error)
    assert (one.status, one.why) == ("error", why)
    assert (one.samples, one.samples_done, one.errors, one.missing) == (4, 3, 1, 1)


def test_epochs_are_planned_too() -> None:
    assert planned_samples({"eval": {"dataset": {"sample_ids": [1, 2]}, "config": {"epochs": 3}}}) == 6
    assert planned_samples({"eval": {"dataset": {"sample_ids": None}, "config": {"epochs": None}}}) == 0


def test_what_never_began_has_no_log() -> None:
    one = log_report({}, task="t", model="m", status="error", log="", error="no such task")
    assert (one.eval_id, one.samples, one.missing, one.why) == ("", 0, 0, "no such task")


def test_a_log_that_was_never_finished_tells_what_it_began_with(tmp_path: Path) -> None:
    header = read_header(a_log(tmp_path, status="started", samples=2))
    assert "status" not in header
    assert planned_samples(header) == 2


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.eval").write_bytes(b"half of")
    with pytest.raises(EvalFileUnreadable):
        read_header(str(tmp_path / "a.eval"))
