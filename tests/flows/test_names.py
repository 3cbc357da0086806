"""Names of flow runs say what runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleet.evals.request import EvalRequest
from flows import names


def a_request(tasks: list[str], models: list[str]) -> EvalRequest:
    return EvalRequest.model_validate({"tasks": tasks, "models": models})


@pytest.mark.parametrize(
    ("tasks", "models", "name"),
    [
        (["fleet_examples/elements"], ["scripted/chemist"], "elements on chemist"),
        (["tasks.py@mine"], ["openrouter/lab/m-1"], "mine on m-1"),
        (["a", "b", "c"], ["x", "y"], "3 tasks on 2 models"),
        (["plain"], ["mockllm"], "plain on mockllm"),
    ],
)
def test_a_request_is_named_by_its_tasks_and_models(tasks: list[str], models: list[str], name: str) -> None:
    assert names.subject(a_request(tasks, models)) == name


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A flow run as Prefect shows it to the function that names it."""
    run = SimpleNamespace(name="small-cat", parameters={"request": a_request(["a/t"], ["b/m"])})
    monkeypatch.setattr(names, "runtime", SimpleNamespace(flow_run=run))
    return run


def test_the_name_a_run_was_started_under_stays_in_it(started: Any) -> None:
    assert names.run_name() == "t on m · small-cat"
    assert names.own_name(names.run_name()) == "small-cat"


def test_a_run_that_is_tried_again_keeps_its_name(started: Any) -> None:
    started.name = names.run_name()
    assert names.run_name() == "t on m · small-cat"


def test_one_is_not_many(started: Any) -> None:
    started.parameters = {"count": 1, "eval_ids": ["t-1a2b3c"]}
    assert names.launch_name() == "launch 1 instance"
    assert names.secrets_name() == "secrets for 1 instance"
    assert names.collect_name() == "collect t-1a2b3c"
    started.parameters = {"count": 24, "eval_ids": ["a", "b"]}
    assert names.launch_name() == "launch 24 instances"
    assert names.secrets_name() == "secrets for 24 instances"
    assert names.collect_name() == "collect 2 evals"
