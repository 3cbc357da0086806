"""From a request to the eval set that a Hawk deployment runs. Pure; facts: Hawk 3.7.2.

Nothing of a request is dropped: what Hawk can't honour is refused, all of it in one error, and what has no meaning there is
named in a warning.
"""

from __future__ import annotations

import glob
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.evals.plan import settled_config
from fleet.evals.rates import RatesRefused
from fleet.evals.request import EvalRequest, ModelSpec, SolverSpec, TaskSpec
from fleet.hawk import requirements
from fleet.hawk.identity import eval_set_id
from fleet.hawk.origins import INSPECT, NO_MODEL, Origins, grouped, own, own_agent
from fleet.hawk.pushed import NotPushed, PushedSource
from fleet.hawk.refused import OPTIONS_IDLE, HawkRefused, config_problem, generate_problem, option_problems

LARGEST = 2**20 - 2**16
"""Bytes of a configuration. Hawk puts it into one object of Kubernetes, which holds 1 MiB, with a little beside it."""

HAWKS_METADATA = frozenset({"created_by", "eval_set_id"})
"""Keys that Hawk writes over."""

_NOT_A_MODELS = frozenset({"config", "default", "memoize", "role"})
"""Arguments that Hawk gives to Inspect's `get_model` instead of the model's provider."""


@dataclass(frozen=True, slots=True)
class ExpectedLog:
    """One task with one model: a log that a whole eval set has."""

    task: str
    """Registry name, as the request and the log's `eval.task_registry_name` have it."""
    args: dict[str, Any]
    """What the request gives, without the task's defaults; Hawk's runner makes the task itself, and its log may have those, too."""
    model: str
    """Inspect name, as the log's `eval.model` has it."""
    samples: tuple[str | int, ...] = ()
    """The only ones that were asked for, by id; empty: all."""


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
    request: EvalRequest,
    *,
    source: PushedSource | NotPushed | None,
    options: Mapping[str, Any],
    nonce: str = "",
    rates: Mapping[str, Any] | RatesRefused | None = None,
) -> EvalSet:
    """The eval set of a request. HawkRefused names everything that can't be honoured.

    `options`: of the fleet, those that aren't at their default; `new_fleet` is honoured by a `nonce`, which makes an id of its own.
    `rates`: the request's table of model prices, or what is wrong with it.
    """
    problems = list(_problems(request))
    problems += option_problems(frozenset(options))
    if isinstance(source, NotPushed):
        problems += source.problems
    if isinstance(rates, RatesRefused):
        problems.append(rates.message())
        rates = None
    origins = Origins(request.packages, source)
    config = _config(request, origins, rates)
    problems += origins.problems
    problems += _unfit(config)
    if problems:
        raise HawkRefused(problems=list(dict.fromkeys(problems)))
    return EvalSet(
        id=eval_set_id(request.tasks[0].name, config, nonce),
        config=config,
        secrets=tuple(dict.fromkeys(request.secrets)),
        expected=tuple(
            ExpectedLog(task.name, task.args, model.name, tuple(task.sample_ids))
            for task in request.tasks
            for model in request.models
        ),
        warnings=tuple(_warnings(request, source, frozenset(options))),
    )


def _problems(request: EvalRequest) -> Iterator[str]:
    """What the request itself asks that Hawk can't do."""
    for task in request.tasks:
        if why := _unregistered(task.name):
            yield f"the task {task.name} {why}"
        if task.sample_ids and (clash := _selects_too(request)):
            yield f"the task {task.name} has sample ids, with which eval_config {clash} can't be combined"
    if request.solver and (why := _unregistered(request.solver.name, bare=True)):
        yield f"the solver {request.solver.name} {why}"
    for model in request.models:
        yield from _model_problems(model)
    if any(model.roles != request.models[0].roles for model in request.models):
        yield "the models have different roles, and an eval set on Hawk has one for all: make a request for each"
    yield from _repeated(request)
    yield from filter(None, map(config_problem, request.eval_config))
    yield from filter(None, map(generate_problem, request.generate_config))
    if request.eval_config.get("epochs_reducer") and not request.eval_config.get("epochs"):
        yield "eval_config epochs_reducer needs epochs beside it"
    if request.eval_config.get("sample_shuffle") is True and _seed(request) is None:
        yield "eval_config sample_shuffle: tasks would be shuffled by one seed on Hawk: give it a number"
    yield from requirements.problems(request.packages)
    if request.python:
        yield f"python {request.python}: Hawk's runner has its own Python: leave it out"
    if request.settings:
        yield "settings: no checkout travels to Hawk: leave them out, or run this on the fleet"
    if request.samples_per_job != "auto":
        yield "samples_per_job: a task is not cut into jobs on Hawk: leave it at auto"
    if taken := sorted(HAWKS_METADATA & request.metadata.keys()):
        yield f"metadata {', '.join(taken)}: Hawk writes over it: take another name"


def _unregistered(name: str, *, bare: bool = False) -> str:
    """Why Hawk's runner finds no such task or solver, as the end of a sentence, and what to do. `bare`: it may be Inspect's own."""
    if "@" in name or name.endswith(".py"):
        return "is in a file, and Hawk runs what packages register: register it, and name it <package>/<name>"
    prefix, slash, rest = name.partition("/")
    if not (prefix and rest if slash else bare):
        return "has no package, and Hawk runs what packages register: name it <package>/<name>"
    return ""


def _selects_too(request: EvalRequest) -> str:
    return next((key for key in ("limit", "sample_shuffle") if request.eval_config.get(key)), "")


def _model_problems(model: ModelSpec) -> Iterator[str]:
    for name in (model.name, *model.roles.values()):
        if name in NO_MODEL:
            yield f"the model {name} is none, and Hawk wants to know each model that is called: name it"
        elif not all(name.partition("/")) or name != name.strip():
            yield f"the model {name} can't be Inspect's name of one: write <provider>/<model>"
    if "api_key" in model.args:
        yield f"the model {model.name} has an api_key among its arguments, which Hawk refuses: give it with secrets"
    if "base_url" in model.args:
        yield f"the model {model.name} has a base_url among its arguments: give it as the model's base_url"
    if taken := sorted(_NOT_A_MODELS & model.args.keys()):
        yield f"the model argument {', '.join(taken)} of {model.name} means something else on Hawk: leave it out"


def _repeated(request: EvalRequest) -> Iterator[str]:
    tasks = Counter(_key(task) for task in request.tasks)
    models = Counter(model.name for model in request.models)
    for name in dict.fromkeys(task.name for task in request.tasks if tasks[_key(task)] > 1):
        yield f"the task {name} is there twice with the same arguments, which an eval set can't tell apart: ask once"
    for name in models:
        if models[name] > 1:
            yield f"the model {name} is there twice, which an eval set's logs can't tell apart: make a request for each"


def _key(task: TaskSpec) -> str:
    return json.dumps([task.name, task.args], sort_keys=True)


def _seed(request: EvalRequest) -> int | None:
    """The seed that a shuffle without one gets, as on the fleet; None: there are several tasks, each with its own there."""
    seeds = {settled_config(request.eval_config, task)["sample_shuffle"] for task in request.tasks}
    return seeds.pop() if len(seeds) == 1 else None


def _config(request: EvalRequest, origins: Origins, rates: Mapping[str, Any] | None) -> dict[str, Any]:
    """Hawk's EvalSetConfig, as far as the request can be mapped."""
    config: dict[str, Any] = {
        "tasks": [_task(task, origins) for task in request.tasks],
        "models": [_model(model, origins) for model in request.models],
        "retry_attempts": 0,  # Hawk's own would run a failing task eleven times
    }
    if request.models[0].roles:
        config["model_roles"] = {
            role: grouped(origins.model(name)) for role, name in request.models[0].roles.items() if name
        }
    if request.solver:
        config["agents" if own_agent(request.solver.name) else "solvers"] = [_solver(request.solver, origins)]
    config["packages"] = _packages(request, origins)
    config |= {key: value for key, value in request.generate_config.items() if value is not None}
    config |= {key: value for key, value in request.eval_config.items() if value is not None}
    reducer = config.pop("epochs_reducer", None)
    if reducer:
        config["epochs"] = {"epochs": config.get("epochs"), "reducer": reducer}
    if config.get("sample_shuffle") is True:
        config["sample_shuffle"] = _seed(request)
    if "approval" in config:
        config["approval"] = _approval(config["approval"])
    if rates:
        config["model_cost_config"] = dict(rates)
    if request.tags:
        config["tags"] = request.tags
    if request.metadata:
        config["metadata"] = request.metadata
    if request.secrets:
        config["runner"] = {"secrets": [{"type": "env", "name": name} for name in dict.fromkeys(request.secrets)]}
    return config


def _task(task: TaskSpec, origins: Origins) -> dict[str, Any]:
    # Inspect selects by pattern, and a request by the ids themselves.
    chosen = [glob.escape(wish) if isinstance(wish, str) else wish for wish in task.sample_ids]
    item = {**({"args": task.args} if task.args else {}), **({"sample_ids": chosen} if chosen else {})}
    return grouped(origins.registered("task", task.name), **item)


def _model(model: ModelSpec, origins: Origins) -> dict[str, Any]:
    args = {**model.args, **({"base_url": model.base_url} if model.base_url else {})}
    return grouped(origins.model(model.name), **({"args": args} if args else {}))


def _solver(solver: SolverSpec, origins: Origins) -> dict[str, Any]:
    found = {"package": INSPECT, "item": solver.name} if own(solver.name) else origins.registered("solver", solver.name)
    return grouped(found, **({"args": solver.args} if solver.args else {}))


def _packages(request: EvalRequest, origins: Origins) -> list[str]:
    """Everything to install, in the request's order; what is named with a task may be here, too."""
    source = [origins.source.url] if isinstance(origins.source, PushedSource) else []
    return list(dict.fromkeys([*request.packages, *source, *origins.added]))


def _approval(policy: Any) -> Any:
    """Inspect's policy of approval in Hawk's form: tools as a list, and `params` called args."""
    if not isinstance(policy, dict) or not isinstance(policy.get("approvers"), list):
        return policy
    return {"approvers": [_approver(one) if isinstance(one, dict) else one for one in policy["approvers"]]}


def _approver(one: Mapping[str, Any]) -> dict[str, Any]:
    tools = one.get("tools")
    args = {"args": one["params"]} if one.get("params") else {}
    return {"name": one.get("name"), "tools": [tools] if isinstance(tools, str) else tools, **args}


def _unfit(config: Mapping[str, Any]) -> Iterator[str]:
    """What of a configuration doesn't reach a runner."""
    text = json.dumps(config, ensure_ascii=False)
    if bad := sorted({sign for sign in text if ord(sign) > 0xFFFF or 0xD800 <= ord(sign) <= 0xDFFF}):
        shown = ", ".join(f"U+{ord(sign):04X}" for sign in bad[:5])
        yield f"the request has characters that Hawk can't hand on ({shown}): take them out"
    if (size := len(json.dumps(config))) > LARGEST:
        yield (
            f"the request makes a configuration of {size // 1024} KiB, and Hawk can take {LARGEST // 1024}: name fewer sample "
            "ids, or make several requests"
        )


def _warnings(request: EvalRequest, source: PushedSource | NotPushed | None, options: frozenset[str]) -> Iterator[str]:
    if idle := sorted(options & OPTIONS_IDLE):
        yield f"without effect on Hawk, which has no instances of ours: {', '.join(idle)}"
    if isinstance(source, PushedSource) and source.untracked:
        yield f"untracked files of the source stay behind: {requirements.few(source.untracked)}"
    if loose := requirements.unpinned(request.packages):
        shown = requirements.few(loose)
        yield f"not pinned, so that Hawk may install something else another day and take it for the same eval: {shown}"
    if request.solver and not own(request.solver.name):
        yield f"Hawk looks for {request.solver.name} among solvers: were it an agent, it wouldn't find it"
    if keys := [name for name in request.secrets if name.endswith("_API_KEY")]:
        yield (
            f"{', '.join(keys)} takes the place of what Hawk gives its runner for the gateway that models are called through: "
            "leave it out unless the tasks need it"
        )
