"""How a merged eval ended: decided from counts alone, by the rules Inspect applies at the end of a run.

The jobs themselves run with `fail_on_error=False`, so that a sample's error costs nobody else's work; what the user
asked for is applied here, once, to the whole eval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fleet.evals.documents import JobId

Status = Literal["success", "error"]

_NAMED = 3
"""Absent jobs named in the error's message; its traceback lists them all."""


@dataclass(frozen=True, slots=True)
class AbsentSamples:
    """Samples of one job that no result holds, and why."""

    job: JobId
    samples: int
    why: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The status of a log, and Inspect's `EvalError` where there is one, as JSON."""

    status: Status
    error: dict[str, Any] | None = None


def decide(
    config: Mapping[str, Any],
    *,
    total: int,
    errors: int,
    first_error: dict[str, Any] | None,
    absent: Sequence[AbsentSamples] = (),
) -> Outcome:
    """The outcome of an eval of `total` samples, `errors` of which ended in an error, under its eval config.

    Samples that are absent make it an error whatever the config says: only so does `inspect eval-retry` finish it.
    With `continue_on_fail` Inspect marks the log without an error of its own; so does this.
    """
    failed = should_fail(errors, total, config.get("fail_on_error"))
    own = first_error if config.get("continue_on_fail") is not True else None
    if absent:
        return Outcome("error", _absence(absent, total, own if failed else None))
    return Outcome("error", own) if failed else Outcome("success")


def should_fail(errors: int, total: int, rule: bool | float | None) -> bool:
    """Inspect's `fail_on_error`: any error (None, True), never (False), a fraction (below 1), else a count."""
    if rule is False:
        return False
    if rule is None or rule is True:
        return errors > 0
    return errors >= (rule * total if rule < 1 else rule)


def _absence(absent: Sequence[AbsentSamples], total: int, sample_error: dict[str, Any] | None) -> dict[str, Any]:
    lines = [f"job {one.job} ({_samples(one.samples)}): {one.why}" for one in absent]
    named = "; ".join(lines[:_NAMED])
    if len(lines) > _NAMED:
        named += f"; and {len(lines) - _NAMED} more jobs"
    missing = sum(one.samples for one in absent)
    message = f"{missing} of {total} samples are missing (inspect eval-retry runs them): {named}"
    traceback = "\n".join(lines)
    if sample_error is not None:
        traceback += f"\n\nA sample failed too:\n{sample_error.get('traceback', '')}"
    return {"message": message, "traceback": traceback, "traceback_ansi": traceback}


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"
