"""The verb `recompute`: what a merged log says as a whole, computed by Inspect where the user's own metrics import.

`recompute` reads two JSON lines from its standard input: `{"plan"}`, the plan log of an eval, and, once all samples are known,
`{"records", "out", "status", "error", "total_samples", "started_at", "completed_at"}`. It answers with a file at `out`,
an `.eval` without samples: its header and its reductions are those of the merged log. No file is no answer.
Before the first line it imports Inspect, between the two the user's code: seconds, in which the parent does other things.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalError, EvalLog, EvalStats, read_eval_log, recompute_metrics, write_eval_log
from inspect_ai.model import ModelUsage

from . import inside
from .field_sets import shared_field_sets
from .records import sorted_out


def main(_: list[str]) -> int:
    """Serve one merge, and end the process with 0. 1: the parent gave up, or ended, before it asked."""
    if not (eval_ := _told()):
        return 1
    log = read_eval_log(eval_["plan"], header_only=True)
    trouble = import_code(log)
    if not (order := _told()):
        return 1
    with shared_field_sets():
        complete(log, order, trouble)
        write_eval_log(log, order["out"])
    # What the user's code wants done at the end is; what was imported isn't taken apart, which takes a sixth as long as the work.
    atexit._run_exitfuncs()  # noqa: SLF001 (as multiprocessing calls it)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _told() -> dict[str, Any] | None:
    """What the next line says; None: the other end is gone."""
    line = sys.stdin.readline()
    said: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
    return said


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


def complete(log: EvalLog, order: dict[str, Any], trouble: Exception | None = None) -> None:
    """Give a plan log the results, reductions, usage and status of the whole eval.

    A metric that raises is what it is in a plain run: the log has status `error` and that error, and no results. `trouble`
    is what the user's code raised when it was imported, which comes to the same.
    """
    with Path(order["records"]).open("rb") as file:
        samples, usage, measured = sorted_out(file)
        log.status = order["status"]
        log.error = EvalError(**order["error"]) if order["error"] else None
        log.stats = EvalStats(
            started_at=order["started_at"],
            completed_at=order["completed_at"],
            model_usage=_total(record["model_usage"] for record in usage),
            role_usage=_total(record["role_usage"] for record in usage),
        )
        log.samples = samples.of_a_log()
        if measured:
            _measure(log, order["total_samples"], trouble)
        log.samples = []


def _measure(log: EvalLog, total_samples: int, trouble: Exception | None) -> None:
    try:
        _recompute(log, trouble)
    except Exception as error:  # noqa: BLE001 (a user's metric may raise anything)
        log.results = log.reductions = None
        log.status = "error"
        log.error = _eval_error(error)
    else:
        assert log.results is not None  # noqa: S101 (recompute_metrics has just set it)
        log.results.total_samples = total_samples


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
