"""Names of flow runs, as a person reads them in a list: what runs, in a few words."""

from __future__ import annotations

from prefect import runtime

from fleet.evals.request import EvalRequest
from fleet.pool.runs import BETWEEN


def run_name() -> str:
    """`elements on chemist · small-cat`: what runs, and the name it was started under, a person's own or Prefect's."""
    given = str(runtime.flow_run.name)
    what = subject(EvalRequest.model_validate(runtime.flow_run.parameters["request"]))
    return given if given.startswith(what) else f"{what}{BETWEEN}{given}"  # a retried run has its name already


def own_name(name: str) -> str:
    """The part of a run's name under which it was started."""
    return name.rpartition(BETWEEN)[2]


def subject(request: EvalRequest) -> str:
    """What a request is about: `elements on chemist`, `3 tasks on 2 models`."""
    tasks = [_last(one.name) for one in request.tasks]
    models = [_last(one.name) for one in request.models]
    return f"{_few(tasks, 'tasks')} on {_few(models, 'models')}"


def launch_name() -> str:
    """`launch 2 instances`."""
    return f"launch {_count(runtime.flow_run.parameters['count'], 'instance')}"


def secrets_name() -> str:
    """`secrets for 2 instances`."""
    return f"secrets for {_count(runtime.flow_run.parameters['count'], 'instance')}"


def collect_name() -> str:
    """`collect elements-1a2b3c`, `collect 3 evals`."""
    return f"collect {_few(runtime.flow_run.parameters['eval_ids'], 'evals')}"


def _last(name: str) -> str:
    return name.replace("@", "/").rpartition("/")[2]


def _few(names: list[str], what: str) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} {what}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
