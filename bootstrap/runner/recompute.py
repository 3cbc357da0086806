"""The verb `recompute`: what a merged log says as a whole, computed by Inspect where the user's own metrics import.

`recompute PLAN_LOG` reads one JSON line from its standard input, once all samples are known:
`{"records", "out", "status", "error", "total_samples", "started_at", "completed_at"}`. It answers with a file at `out`,
an `.eval` without samples: its header and its reductions are those of the merged log. No file is no answer.
Until the line comes, it imports; that takes seconds, in which the parent copies.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalError, EvalLog, EvalSample, EvalStats, read_eval_log, recompute_metrics, write_eval_log
from inspect_ai.model import ModelUsage
from inspect_ai.scorer import Score

from . import inside


def main(arguments: list[str]) -> int:
    """Serve one merge. 0: answered; 1: the parent gave up before it asked."""
    log = read_eval_log(arguments[0], header_only=True)
    trouble = import_code(log)
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return 1
    order = json.loads(line)
    with Path(order["records"]).open(encoding="utf-8") as records:
        complete(log, (json.loads(record) for record in records), order, trouble)
    write_eval_log(log, order["out"])
    return 0


def import_code(log: EvalLog) -> Exception | None:
    """Import the task's file or package, so that the names in the header mean something. What it raised, if it did."""
    try:
        if log.eval.task_file and Path(log.eval.task_file).is_file():
            inside.load_file(Path(log.eval.task_file).absolute())
        elif log.eval.task_registry_name:
            inside.lookup("task", log.eval.task_registry_name)
    except Exception as error:  # noqa: BLE001 (the user's own code)
        return error
    return None


def complete(
    log: EvalLog, records: Iterable[dict[str, Any]], order: dict[str, Any], trouble: Exception | None = None
) -> None:
    """Give a plan log the results, reductions, usage and status of the whole eval.

    A metric that raises is what it is in a plain run: the log has status `error` and that error, and no results. `trouble`
    is what the user's code raised when it was imported, which comes to the same.
    """
    samples: list[tuple[list[Any], EvalSample]] = []
    usage: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
    for record in records:
        if "job" in record:
            usage.append((record["job"], record["model_usage"], record["role_usage"]))
        else:
            samples.append((record["place"], _light_sample(record)))
    samples.sort(key=lambda placed: placed[0])
    usage.sort(key=lambda entry: entry[0])  # sums of floats depend on their order, so that it is always the same
    log.status = order["status"]
    log.error = EvalError(**order["error"]) if order["error"] else None
    log.stats = EvalStats(
        started_at=order["started_at"],
        completed_at=order["completed_at"],
        model_usage=_total(models for _, models, _ in usage),
        role_usage=_total(roles for _, _, roles in usage),
    )
    log.samples = [sample for _, sample in samples]
    if any(sample.error is None or sample.scores for sample in log.samples):
        try:
            _recompute(log, trouble)
        except Exception as error:  # noqa: BLE001 (a user's metric may raise anything)
            log.results = log.reductions = None
            log.status = "error"
            log.error = _eval_error(error)
        else:
            assert log.results is not None  # noqa: S101 (recompute_metrics has just set it)
            log.results.total_samples = order["total_samples"]
    log.samples = []


def _light_sample(record: dict[str, Any]) -> EvalSample:
    """As much of a sample as metrics are given; built without validation, which costs most of the time otherwise."""
    scores = record["scores"]
    return EvalSample.model_construct(
        id=record["id"],
        epoch=record["epoch"],
        input="",
        target="",
        scores=None if scores is None else {name: Score.model_validate(score) for name, score in scores.items()},
        metadata=record["metadata"],
        error=EvalError(message="", traceback="", traceback_ansi="") if record["failed"] else None,
    )


def _total(parts: Iterator[dict[str, Any]]) -> dict[str, ModelUsage]:
    totals: dict[str, ModelUsage] = {}
    for part in parts:
        for name, usage in part.items():
            one = ModelUsage.model_validate(usage)
            totals[name] = totals[name] + one if name in totals else one
    return totals


def _recompute(log: EvalLog, trouble: Exception | None) -> None:
    """Inspect's own computation. Metrics that are defined where only the task itself looks are known once it is built."""
    if trouble is not None:
        raise trouble
    try:
        recompute_metrics(log)
    except LookupError:
        task = inside.lookup("task", log.eval.task_registry_name or log.eval.task)
        if task is None:
            raise
        task(**log.eval.task_args)
        recompute_metrics(log)


def _eval_error(error: Exception) -> EvalError:
    message = str(getattr(error, "message", repr(error)))  # as Inspect words it
    trace = "".join(traceback.format_exception(error))
    return EvalError(message=message, traceback=trace, traceback_ansi=trace)
