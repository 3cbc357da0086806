"""What an eval set came to, by its logs alone: the newest one of each task, matched to what was asked for.

Hawk starts a log for each time that a task is tried, and calls a run `complete` whatever its logs say. A log that was expected
and isn't there is a failure like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet.evals.eval_file import EvalFileUnreadable
from fleet.evals.log_report import log_report, planned_samples, read_header
from fleet.evals.report import EvalReport
from fleet.hawk.mapping import ExpectedLog
from fleet.hawk.requirements import few


@dataclass(frozen=True, slots=True)
class HawkLog:
    """A downloaded log."""

    path: Path
    header: Mapping[str, Any]

    @property
    def status(self) -> str:
        """Inspect's; `started` of one whose runner ended before it was finished."""
        return str(self.header.get("status") or "started")

    @property
    def evaluated(self) -> Mapping[str, Any]:
        """Inspect's `EvalSpec`."""
        spec: Mapping[str, Any] = self.header.get("eval") or {}
        return spec

    def is_of(self, task: str, model: str) -> bool:
        """Whether it is of this task, by its registry name, with this model."""
        spec = self.evaluated
        return task in (spec.get("task_registry_name"), spec.get("task")) and spec.get("model") == model


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs of an eval set."""

    logs: Sequence[HawkLog]
    """The newest of each task."""
    unreadable: Sequence[str] = ()
    """One line for each that can't be read."""


def read_logs(paths: Iterable[Path]) -> Logs:
    """The newest log of each task id among these files."""
    newest: dict[str, HawkLog] = {}
    unreadable = []
    for path in paths:
        try:
            log = HawkLog(path, read_header(str(path)))
        except EvalFileUnreadable as error:
            unreadable.append(f"{path.name} can't be read: {error.why}")
            continue
        task = str(log.evaluated.get("task_id") or path.name)
        if task not in newest or _begun(log) > _begun(newest[task]):
            newest[task] = log
    return Logs(sorted(newest.values(), key=_begun), unreadable)


def reports(expected: Sequence[ExpectedLog], found: Logs) -> list[EvalReport]:
    """What each expected eval came to, in their order. A report's `log` is the file's path; empty: there is none."""
    matched = _matched(expected, found.logs)
    answers = []
    for index, its in enumerate(expected):
        log = matched.get(index)
        if log is None:
            planned = max(
                (
                    planned_samples(other.header)
                    for other in found.logs
                    if other.is_of(its.task, str(other.evaluated.get("model"))) and _in_effect(other, its.args)
                ),
                default=0,
            )
            answers.append(_missing(its, planned, found.unreadable))
        else:
            answers.append(_told(its, log))
    return answers


def _told(its: ExpectedLog, log: HawkLog) -> EvalReport:
    error = str((log.header.get("error") or {}).get("message") or "")
    if log.status == "started":
        error = "its runner ended before the log was finished"
    told = log_report(log.header, task=its.task, model=its.model, status=log.status, log=str(log.path), error=error)
    # Inspect leaves out in silence an id that no sample has, as long as another one has a sample.
    there = {str(sample) for sample in (log.evaluated.get("dataset") or {}).get("sample_ids") or its.samples}
    absent = [str(sample) for sample in its.samples if str(sample) not in there]
    if not absent:
        return told
    lacking = len(absent) * ((log.evaluated.get("config") or {}).get("epochs") or 1)
    why = "; ".join(part for part in (told.why, f"the task has no sample {few(absent)}") if part)
    return told.model_copy(
        update={"status": "error", "samples": told.samples + lacking, "missing": told.missing + lacking, "why": why}
    )


def whole(evals: Sequence[EvalReport]) -> bool:
    """Whether every expected log is there, with success."""
    return all(one.status == "success" for one in evals)


def _matched(expected: Sequence[ExpectedLog], logs: Sequence[HawkLog]) -> dict[int, HawkLog]:
    """A log for each index, every log once, the newest first: by the arguments that were given, else by those that took effect,
    else where only one eval asks for the task and model."""
    matched: dict[int, HawkLog] = {}
    left = list(logs)

    def pair(fits: Callable[[HawkLog, Mapping[str, Any]], bool], *, alone: bool = False) -> None:
        for index, its in enumerate(expected):
            candidates = [log for log in left if log.is_of(its.task, its.model) and fits(log, its.args)]
            asking = [other for other in expected if (other.task, other.model) == (its.task, its.model)]
            if index in matched or not candidates or (alone and len(asking) > 1):
                continue
            matched[index] = candidates[-1]
            left.remove(candidates[-1])

    pair(lambda log, args: log.evaluated.get("task_args_passed") == args)
    pair(_in_effect)
    pair(lambda *_: True, alone=True)
    return matched


def _in_effect(log: HawkLog, args: Mapping[str, Any]) -> bool:
    """Whether the task had these arguments, whoever gave them."""
    effective = log.evaluated.get("task_args") or {}
    return all(name in effective and effective[name] == value for name, value in args.items())


def _begun(log: HawkLog) -> tuple[datetime, str]:
    try:
        begun = datetime.fromisoformat(str(log.evaluated.get("created")))
    except ValueError:
        begun = datetime.min.replace(tzinfo=UTC)
    return (begun if begun.tzinfo else begun.replace(tzinfo=UTC)), log.path.name


def _missing(its: ExpectedLog, planned: int, unreadable: Sequence[str]) -> EvalReport:
    why = "; ".join(["Hawk has no log of it", *unreadable])
    return EvalReport(
        eval_id="",
        task=its.task,
        model=its.model,
        status="error",
        log="",
        stored="",
        samples=planned,
        samples_done=0,
        errors=0,
        missing=planned or 1,
        why=why,
    )
