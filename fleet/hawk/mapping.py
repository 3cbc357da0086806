"""From a request to the eval set that a Hawk deployment runs. Pure; facts: Hawk 3.7.2.

Nothing of a request is dropped: what Hawk can't honour is refused, all of it in one error, and what has no meaning there is
named in a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.evals.request import EvalRequest
from fleet.hawk.pushed import PushedSource


@dataclass(frozen=True, slots=True)
class ExpectedLog:
    """One task with one model: a log that a whole eval set has."""

    task: str
    """Registry name, as the request and the log's `eval.task` have it."""
    args: dict[str, Any]
    """As the log's `eval.task_args_passed` has them: what the request gives, without the task's defaults."""
    model: str
    """Inspect name, as the log's `eval.model` has it."""


@dataclass(frozen=True, slots=True)
class EvalSet:
    """What is sent to Hawk, and what is to come back."""

    id: str
    """Equal for requests that evaluate the same: at most 43 of a–z, 0–9 and -."""
    config: dict[str, Any]
    """Hawk's EvalSetConfig."""
    secrets: tuple[str, ...]
    """Names of the variables whose values go with it."""
    expected: tuple[ExpectedLog, ...]
    """In the request's order: the models of the first task, then those of the second."""
    warnings: tuple[str, ...]
    """What a person should know, a line each."""


def eval_set(
    request: EvalRequest, *, source: PushedSource | None, options: Mapping[str, Any], nonce: str = ""
) -> EvalSet:
    """The eval set of a request. HawkRefused names everything that can't be honoured.

    `options`: of the fleet, those that aren't at their default; `new_fleet` is honoured by a `nonce`, which makes an id of its own.
    """
    raise NotImplementedError(request, source, options, nonce)
