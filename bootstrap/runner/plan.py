"""The verb `plan`: a plan log and the facts for a manifest, for each task with each model, in one interpreter.

`plan REQUEST ANSWER`: REQUEST is a JSON file `{"evals": [what, …], "folder": …, "rates": … or null}`.
"""

from __future__ import annotations

import asyncio
import glob
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspect_ai import eval_async
from inspect_ai.log import EvalLog
from inspect_ai.util import display_type

from . import inside
from .refusal import Refused, answer, first_line
from .settings import call, eval_settings
from .tasks import Built, build


def main(arguments: list[str]) -> int:
    """Plan what a request file asks for."""
    request, said = Path(arguments[0]), Path(arguments[1])
    asked = json.loads(request.read_text())
    display_type()  # settles it by the environment ("none")
    return answer(said, lambda: asyncio.run(plan_all(asked["evals"], Path(asked["folder"]), asked.get("rates"))))


async def plan_all(evals: list[dict[str, Any]], folder: Path, rates: str | None) -> list[dict[str, Any]]:
    """Plan each, in order. Refused: the first that can't be planned."""
    async with inside.shared_files():
        return [await plan_one(what, folder / f"{number:03}", rates) for number, what in enumerate(evals)]


async def plan_one(what: Mapping[str, Any], folder: Path, rates: str | None) -> dict[str, Any]:
    """The plan log of one eval, and what its manifest needs."""
    settings = eval_settings(what.get("eval_config") or {})
    arguments = call(what)
    built = build(what)
    wanted = list(what["task"].get("sample_ids") or [])
    log = await _plan_log(what, built, arguments, settings, wanted, folder, rates)
    ids = list(log.eval.dataset.sample_ids or [])
    sourced = built.task.sample_source is not None
    return {
        "log": log.location.removeprefix("file://"),
        "task_name": log.eval.task,
        "sample_ids": ids,
        "digests": [] if sourced else [built.digest(sample_id) for sample_id in ids],
        "epochs": log.eval.config.epochs or 1,
        "splittable": built.splittable,
        "needs_docker": sourced_needs(built) if sourced else built.needs_docker(ids),
    }


def sourced_needs(built: Built) -> bool:
    """Whether a dataset that grows needs Docker, by what is known before it runs."""
    return built.needs_docker([sample.id for sample in built.task.dataset if sample.id is not None])


async def _plan_log(
    what: Mapping[str, Any],
    built: Built,
    arguments: dict[str, Any],
    settings: dict[str, Any],
    wanted: list[int | str],
    folder: Path,
    rates: str | None,
) -> EvalLog:
    """Inspect's own log of an eval whose samples don't run: the header of the merged log to come."""
    if not wanted:
        return await _logged(what, built, arguments, settings, folder, rates)
    if clash := next((key for key in ("limit", "sample_id", "sample_shuffle") if settings.get(key)), None):
        raise Refused("ConfigValueRefused", place="eval_config", why=f"{clash} can't be combined with sample ids")
    exact = [(type(wish), wish) for wish in wanted]
    for kind, wish in exact:
        if not any(type(sample.id) is kind and sample.id == wish for sample in built.task.dataset):
            raise Refused("SampleUnknown", sample=repr(wish), task=what["task"]["name"])
    # Inspect selects by pattern. Tried in this order until it selects exactly these: the ids as they are, as `inspect eval
    # --sample-id` would log them; the ids with pattern signs escaped; the dataset cut down.
    for selector in (wanted, [glob.escape(wish) if isinstance(wish, str) else wish for wish in wanted]):
        log = await _logged(what, built, arguments, {**settings, "sample_id": selector}, folder, rates)
        found = [(type(it), it) for it in log.eval.dataset.sample_ids or []]
        if sorted(found, key=repr) == sorted(exact, key=repr):
            return log
        os.unlink(log.location.removeprefix("file://"))  # noqa: PTH108 - the location is text
    built.only(wanted)
    return await _logged(what, built, arguments, settings, folder, rates)


async def _logged(
    what: Mapping[str, Any],
    built: Built,
    arguments: dict[str, Any],
    settings: dict[str, Any],
    folder: Path,
    rates: str | None,
) -> EvalLog:
    try:
        logs = await eval_async(
            built.task,
            **arguments,
            **settings,
            log_dir=str(folder),
            log_format="eval",
            model_cost_config=rates,
            run_samples=False,
            ctl_server=False,
            debug_errors=True,
        )
    except inside.PrerequisiteError as error:
        raise Refused(
            "PrerequisiteRefused", task=what["task"]["name"], model=what["model"]["name"], why=inside.said_by(error)
        ) from error
    except Exception as error:  # Inspect's checks raise ValueError, TypeError, … for what the request has wrong
        sys.stderr.write(f"{first_line(error)}\n")
        raise Refused(
            "TaskRefused", task=what["task"]["name"], model=what["model"]["name"], why=first_line(error)
        ) from error
    return logs[0]
