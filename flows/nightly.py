"""The nightly eval: a request kept in a file or a block, run as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import yaml
from prefect import flow
from prefect.client.schemas.objects import State
from pydantic import Field, ValidationError

from blocks.ec2_config import Ec2Config
from blocks.hawk import Place
from blocks.loading import BlockUnusable, loaded
from blocks.scheduled_eval import ScheduledEval
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


class ScheduledFile(Wire):
    """The content of a schedule's file."""

    request: EvalRequest
    config: Ec2Config = Field(default=Ec2Config(auto_confirm=True))
    account: str = "default"
    worker_secrets: str | None = None
    backend: Place = "fleet"
    hawk: str = "default"


@flow(name="nightly", persist_result=False)
def nightly(file: str | None = None, block: str = "nightly") -> State[RunReport]:
    """Run the eval that a YAML or JSON file, or else a Scheduled Eval block, describes.

    Nobody is asked at night: `auto_confirm` is set unless the description says otherwise.

    Args:
        file: Path of a YAML or JSON file with `request` and, optionally, `config`, `account`, `worker_secrets`, `backend`, `hawk`.
        block: Name of the Scheduled Eval block that holds the same, where there is no file.
    """
    scheduled = from_file(Path(file)) if file else from_block(block)
    state = cast(
        "State[RunReport]",
        run_eval(
            scheduled.request,
            scheduled.config,
            scheduled.account,
            scheduled.worker_secrets,
            scheduled.backend,
            scheduled.hawk,
            return_state=True,
        ),
    )
    return State(type=state.type, name=state.name, message=state.message, data=state.data)


def from_file(path: Path) -> ScheduledFile:
    """The eval that a file describes. ScheduleRefused."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ScheduleRefused(where=str(path), why=error.strerror or str(error)) from error
    except yaml.YAMLError as error:
        raise ScheduleRefused(where=str(path), why="it is neither YAML nor JSON") from error
    if isinstance(content, dict) and isinstance(content.get("config"), dict):
        content = {**content, "config": {"auto_confirm": True, **content["config"]}}
    try:
        return ScheduledFile.model_validate(content)
    except ValidationError as error:
        raise ScheduleRefused(where=str(path), why=explain(error)) from error


def from_block(name: str) -> ScheduledEval:
    """The eval that a block describes. ScheduleRefused."""
    try:
        return loaded(ScheduledEval, name)
    except BlockUnusable as error:
        raise ScheduleRefused(where=f"the block scheduled-eval/{name}", why=str(error)) from None
