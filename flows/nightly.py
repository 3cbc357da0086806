"""The nightly eval: a request kept in a file or a variable, run as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.variables import Variable
from pydantic import Field, ValidationError

from blocks.ec2_config import Ec2Config
from fleet.errors import RequestRefused
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.wire import Wire, explain
from flows.run_eval import run_eval


class ScheduleRefused(RequestRefused):
    """What is scheduled can't be read as a request."""

    where: str
    why: str

    def message(self) -> str:
        """One line: where it was looked for, and what is wrong with it."""
        return f"the scheduled eval in {self.where} can't be run: {self.why}"


class ScheduledEval(Wire):
    """The content of a schedule's file or variable."""

    request: EvalRequest
    config: Ec2Config = Field(default=Ec2Config(auto_confirm=True))
    account: str = "default"
    worker_secrets: str | None = None


@flow(name="nightly", persist_result=False)
def nightly(file: str | None = None, variable: str = "nightly_eval") -> State[RunReport]:
    """Run the eval that a YAML or JSON file, or else a Prefect variable, describes (`request`, `config`, …).

    Nobody is asked at night: `auto_confirm` is set unless the description says otherwise.

    Args:
        file: Path of a YAML or JSON file with `request` and, optionally, `config`, `account`, `worker_secrets`.
        variable: Name of the Prefect variable that holds the same, where there is no file.
    """
    scheduled = from_file(Path(file)) if file else from_variable(variable)
    state = cast(
        "State[RunReport]",
        run_eval(scheduled.request, scheduled.config, scheduled.account, scheduled.worker_secrets, return_state=True),
    )
    return State(type=state.type, name=state.name, message=state.message, data=state.data)


def from_file(path: Path) -> ScheduledEval:
    """The eval that a file describes. ScheduleRefused."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ScheduleRefused(where=str(path), why=error.strerror or str(error)) from error
    return _scheduled(_parsed(text, str(path)), str(path))


def from_variable(name: str) -> ScheduledEval:
    """The eval that a Prefect variable describes. ScheduleRefused."""
    value = cast("Any", Variable.get(name))
    if value is None:
        raise ScheduleRefused(where=f"the variable {name}", why="there is no such variable")
    where = f"the variable {name}"
    return _scheduled(_parsed(value, where) if isinstance(value, str) else value, where)


def _parsed(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScheduleRefused(where=where, why="it is neither YAML nor JSON") from error


def _scheduled(content: Any, where: str) -> ScheduledEval:
    if isinstance(content, dict) and isinstance(content.get("config"), dict):
        content = {**content, "config": {"auto_confirm": True, **content["config"]}}
    try:
        return ScheduledEval.model_validate(content)
    except ValidationError as error:
        raise ScheduleRefused(where=where, why=explain(error)) from error
