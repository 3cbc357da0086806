"""What one finished Inspect log says of itself, as a line of a report. Of logs that Inspect wrote whole: a fleet's are merged."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.evals.delivery import fetch
from fleet.evals.eval_file import HEADER, START, EvalFile
from fleet.evals.report import EvalReport, metrics_of


def read_header(log: str) -> dict[str, Any]:
    """The header of the log at a path or an s3:// address; of one that was never finished, what it began with.

    EvalFileUnreadable. FileNotFoundError.
    """
    if "://" not in log:
        with EvalFile(Path(log)) as file:
            header: dict[str, Any] = json.loads(file.read(HEADER if HEADER in file or START not in file else START))
            return header
    with tempfile.TemporaryDirectory(prefix="inspect-fleet-log-") as scratch:
        return read_header(str(fetch(log, Path(scratch))))


def log_report(header: Mapping[str, Any], *, task: str, model: str, status: str, log: str, error: str) -> EvalReport:
    """The report of a log. `header` is empty where there is no log; `status` is Inspect's, `error` what it ended with."""
    results = header.get("results") or {}
    planned, done = planned_samples(header), results.get("total_samples", 0)
    return EvalReport(
        eval_id=header.get("eval", {}).get("eval_id", ""),
        task=task,
        model=model,
        status="success" if status == "success" else "error",
        log=log,
        stored="",
        samples=planned,
        samples_done=done,
        errors=done - results.get("completed_samples", done),
        missing=max(0, planned - done),
        why=error or ("" if status == "success" else status),
        metrics=metrics_of(results),
    )


def planned_samples(header: Mapping[str, Any]) -> int:
    """The (sample, epoch) pairs that the log was to have."""
    evaluated = header.get("eval", {})
    ids = evaluated.get("dataset", {}).get("sample_ids") or []
    return len(ids) * (evaluated.get("config", {}).get("epochs") or 1)
