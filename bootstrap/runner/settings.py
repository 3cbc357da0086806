"""What a request says about one eval, as the arguments of Inspect's `eval`.

`what` is a task with a model, as `EvalManifest` has them: `task`, `model`, `solver`, `eval_config`, `generate_config`,
`tags`, `metadata`. Planner, jobs and the local backend all go through here, so that they mean the same by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inspect_ai import Epochs
from inspect_ai.log import EvalConfig
from inspect_ai.model import GenerateConfig
from inspect_ai.solver import SolverSpec

from .refusal import Refused, near

OURS_IN_A_JOB = (
    # Which samples run is what the job says.
    "limit",
    "sample_id",
    "sample_shuffle",
    # Judged when the jobs are merged; in a job, every sample runs and every error is kept.
    "fail_on_error",
    "continue_on_fail",
    # For eyes that aren't there, or for a log that is written in one go.
    "log_samples",
    "log_realtime",
    "log_buffer",
    "log_shared",
    "score_display",
    "acp_server",
    "notification",
    # A job is one task.
    "max_tasks",
    "max_dataset_memory",
)
"""Fields of the eval config that a job doesn't take from the user."""
AT_ONCE = 10
"""Samples of a task that Inspect runs side by side where nothing says how many: its default of `max_connections`."""


def eval_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `eval` for fields of its EvalConfig. Refused: ConfigKeyUnknown, ConfigValueRefused."""
    fields = list(EvalConfig.model_fields)
    checked = _checked(EvalConfig, config, fields, "eval_config")
    reducers = checked.pop("epochs_reducer", None)
    if reducers:
        if not checked.get("epochs"):
            raise Refused("ConfigValueRefused", place="eval_config", why="epochs_reducer needs epochs beside it")
        checked["epochs"] = Epochs(checked["epochs"], reducers)
    metered = checked.pop("token_limit_type", None)
    if metered and checked.get("token_limit") is not None:
        from inspect_ai.util import TokenLimit

        checked["token_limit"] = TokenLimit(tokens=checked["token_limit"], type=metered)
    return checked


def generate_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `eval` for fields of Inspect's GenerateConfig. Refused: ConfigKeyUnknown, ConfigValueRefused."""
    return _checked(GenerateConfig, config, list(GenerateConfig.model_fields), "generate_config")


def job_settings(config: Mapping[str, Any], samples: int | None) -> dict[str, Any]:
    """`eval_settings` as a job runs them: `samples` at a time; None: a task that runs whole, its selection the user's."""
    theirs = ("limit", "sample_id") if samples is None else ()
    settings = eval_settings({name: it for name, it in config.items() if name not in OURS_IN_A_JOB or name in theirs})
    if samples is not None:
        settings["max_samples"] = min(samples, settings.get("max_samples") or samples)
        settings["log_buffer"] = samples + 1  # one write at the end
    return settings | {
        "fail_on_error": False,
        "log_realtime": False,
        "score_display": False,
        "ctl_server": False,
        "log_format": "eval",
    }


def at_once(settings: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """How many samples of a job run side by side, by its `job_settings` and its generate config; about, if it runs whole."""
    return int(settings.get("max_samples") or config.get("max_connections") or AT_ONCE)


def call(what: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `eval` that don't come from a config: who answers, by which solver, under which labels."""
    model, solver = what["model"], what.get("solver")
    return {
        "model": model["name"],
        "model_base_url": model.get("base_url"),
        "model_args": dict(model.get("args") or {}),
        "model_roles": dict(model.get("roles") or {}) or None,
        "solver": SolverSpec(solver["name"], dict(solver["args"]), dict(solver["args"])) if solver else None,
        "tags": list(what.get("tags") or []) or None,
        "metadata": dict(what.get("metadata") or {}) or None,
        **generate_settings(what.get("generate_config") or {}),
    }


def shuffle_seed(config: Mapping[str, Any]) -> int | None:
    """The seed by which samples are shuffled; None: they aren't."""
    wanted = config.get("sample_shuffle")
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted else None


def _checked(kind: Any, config: Mapping[str, Any], names: list[str], place: str) -> dict[str, Any]:
    for key in config:
        if key not in names:
            raise Refused("ConfigKeyUnknown", key=key, place=place, near=near(key, names))
    try:
        made = kind.model_validate(dict(config))
    except ValueError as error:  # pydantic's ValidationError is one
        problems = error.errors(include_url=False, include_input=False) if hasattr(error, "errors") else []
        why = "; ".join(f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in problems)
        raise Refused("ConfigValueRefused", place=place, why=why or str(error)) from error
    return {key: getattr(made, key) for key in config}
