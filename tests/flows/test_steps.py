"""What every step of `fleet-worker` does around its work."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from bootstrap.instance import Instance
from bootstrap.secrets import Secrets
from bootstrap.worker_setup import WorkerSetupEnvBroken
from flows.fleet_worker import step


def test_the_error_of_a_step_shows_no_secret_wherever_it_is_shown() -> None:
    """The UI shows a step's error as its state, and its log has the traceback: both are made of the error that leaves it."""

    @step("some-step")
    async def failing(instance: Instance) -> None:
        raise WorkerSetupEnvBroken(why="line 1: sk-secret: command not found")

    instance = SimpleNamespace(secrets=Secrets({"KEY": "sk-secret"}), doing="")
    with pytest.raises(WorkerSetupEnvBroken) as raised:
        anyio.run(cast("Any", failing).fn, instance)
    shown = [str(raised.value), repr(raised.value), "".join(traceback.format_exception_only(raised.value))]
    assert [text for text in shown if "sk-secret" in text or "line 1: <KEY>: command not found" not in text] == []
    assert instance.doing == "some-step"
