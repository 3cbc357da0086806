"""The verb `whole`: a request run as plain Inspect would, task by task, in this one process. `whole REQUEST ANSWER`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspect_ai import eval as run_eval

from . import inside
from .refusal import Refused, answer, first_line
from .settings import call, eval_settings
from .tasks import check_model, check_solver, check_task


def main(arguments: list[str]) -> int:
    """Run what a request file asks for; its answer names a log for each task and model."""
    request, said = Path(arguments[0]), Path(arguments[1])
    asked = json.loads(request.read_text())
    return answer(said, lambda: [run_one(what, asked["log_dir"], asked.get("rates")) for what in asked["evals"]])


def run_one(what: Mapping[str, Any], log_dir: str, rates: str | None) -> dict[str, Any]:
    """One task with one model, by the user's own settings. A failed eval is a log with status error, not a refusal."""
    name, args = check_task(what["task"]["name"], what["task"].get("args") or {})
    for model in (what["model"]["name"], *(what["model"].get("roles") or {}).values()):
        check_model(model)
    if solver := what.get("solver"):
        check_solver(solver["name"])
    settings = eval_settings(what.get("eval_config") or {})
    if wanted := what["task"].get("sample_ids"):
        settings["sample_id"] = list(wanted)
    try:
        logs = run_eval(
            name,
            task_args=dict(args),
            **call(what),
            **settings,
            log_dir=log_dir,
            model_cost_config=rates,
            log_header_only=True,
        )
    except inside.PrerequisiteError as error:
        facts = {"task": name, "model": what["model"]["name"], "why": inside.said_by(error)}
        raise Refused("PrerequisiteRefused", **facts) from error
    except Exception as error:  # the user's own code, or Inspect's checks of the request
        raise Refused("TaskRefused", task=name, model=what["model"]["name"], why=first_line(error)) from error
    log = logs[0] if logs else None
    return {
        "task": what["task"]["name"],
        "model": what["model"]["name"],
        "status": log.status if log else "cancelled",
        "log": log.location.removeprefix("file://") if log else "",
        "error": log.error.message if log and log.error else "",
    }
