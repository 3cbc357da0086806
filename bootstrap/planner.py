"""The plan of a request, made by Inspect itself in the job environment: what it refuses is refused here, in one line.

All tasks and models are planned in one process there, which reads a request file and leaves an answer file; no answer is an
error. The caller's environment goes along, since some providers want their key to be built; it is written nowhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from bootstrap.refusals import PlannerDied, refusal
from fleet.evals.plan import TaskPlan, settled_config
from fleet.evals.request import EvalRequest

LONGEST_S = 7_200.0
"""Seconds that planning may take: tasks download their datasets in it, and one that waits for a host for ever must not hold up
a nightly run for ever."""


def plan_tasks(
    request: EvalRequest,
    environment: JobEnvironment,
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    rates: Path | None = None,
) -> list[TaskPlan]:
    """A plan for each task with each model, tasks first, their plan logs below `folder`. EvalRefused: the first that can't be.

    No model is called and no sandbox started. `env` is the process's environment (ours, if none is given); `rates` a file of
    model prices, which a cost limit needs.
    """
    pairs = [(task, model) for task in request.tasks for model in request.models]
    configs = [settled_config(request.eval_config, task) for task, _ in pairs]
    asked = {
        "evals": [evaluated(request, index, config) for index, config in enumerate(configs)],
        "folder": str(folder.resolve() / "plans"),
        "rates": str(rates.resolve()) if rates else None,
    }
    answers = ask(environment, "plan", asked, folder, env=os.environ if env is None else env)
    return [
        TaskPlan(
            task=task,
            model=model,
            log=Path(said["log"]),
            task_name=said["task_name"],
            eval_config=config,
            sample_ids=said["sample_ids"],
            digests=said["digests"],
            epochs=said["epochs"],
            splittable=said["splittable"],
            needs_docker=said["needs_docker"],
        )
        for (task, model), config, said in zip(pairs, configs, answers, strict=True)
    ]


def evaluated(request: EvalRequest, index: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """The task and model at this place of the request, in the form that the runner takes: that of a manifest."""
    task = request.tasks[index // len(request.models)]
    model = request.models[index % len(request.models)]
    return {
        "task": task.model_dump(mode="json"),
        "model": model.model_dump(mode="json"),
        "solver": request.solver.model_dump(mode="json") if request.solver else None,
        "eval_config": dict(config),
        **request.model_dump(mode="json", include={"generate_config", "tags", "metadata"}),
    }


def ask(
    environment: JobEnvironment, verb: str, asked: Mapping[str, Any], folder: Path, *, env: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The answer of a verb of the runner. EvalRefused: it names what is wrong. PlannerDied: there is no answer."""
    folder.mkdir(parents=True, exist_ok=True)
    request, answer, log = (folder / f"{verb}.{end}" for end in ("request.json", "answer.json", "log"))
    request.write_text(json.dumps(asked))
    answer.unlink(missing_ok=True)
    with log.open("wb") as output:
        try:
            ended = subprocess.run(
                job_process.command(environment, verb, str(request.resolve()), str(answer.resolve())),
                cwd=environment.working_folder,
                env=job_process.variables(environment, env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                timeout=LONGEST_S,
            )
        except subprocess.TimeoutExpired as error:
            how = f"it didn't end within {LONGEST_S:g} s, and was ended"
            raise PlannerDied(how=how, said=job_process.tail(log, 1), log=str(log)) from error
    return answered(answer, f"exit code {ended.returncode}", log)


def answered(answer: Path, how: str, log: Path) -> list[dict[str, Any]]:
    """What an answer file says. EvalRefused, PlannerDied."""
    try:
        said = json.loads(answer.read_text())
    except FileNotFoundError:
        raise PlannerDied(how=how, said=job_process.tail(log, 1), log=str(log)) from None
    if refused := said.get("refused"):
        raise refusal(refused)
    results: list[dict[str, Any]] = said["result"]
    return results
