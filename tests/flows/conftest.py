"""A run on Hawk against a scripted deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from blocks.ec2_config import Ec2Config
from blocks.hawk import HawkDeployment
from fleet.evals.listener import listener
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.hawk.mapping import EvalSet, ExpectedLog
from flows import hawk_run
from flows import run_on_hawk as story
from tests.flows.clock import Clock
from tests.flows.hawk_story import ID, MODEL, TASK, Bar, Done, Follower
from tests.hawk_server import TOKEN, HawkServer, hawk_server


@pytest.fixture
def hawk() -> Iterator[HawkServer]:
    with hawk_server() as server:
        yield server


@pytest.fixture
def follower() -> Iterator[Follower]:
    heard = Follower()
    token = listener.set(heard)
    yield heard
    listener.reset(token)


@pytest.fixture
def asked_for_its_end(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a person cancels the run, look by look; then never."""
    answers: list[bool] = []
    monkeypatch.setattr(story, "asked_to_end", lambda: bool(answers) and answers.pop(0))
    return answers


@pytest.fixture
def run(
    hawk: HawkServer, follower: Follower, asked_for_its_end: list[bool], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RunReport]:
    """Run a request that becomes the eval set `ID`, with no time passing and no Prefect server."""
    clock = Clock()

    class Run(hawk_run.HawkRun):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, clock=clock, sleep=clock.sleep, **named)

    made = EvalSet(ID, {"tasks": []}, ("KEY",), (ExpectedLog(TASK, {}, MODEL),), ())
    monkeypatch.setattr(hawk_run, "LiveArtifacts", Bar)
    monkeypatch.setattr(story, "HawkRun", Run)
    monkeypatch.setattr(story, "make_eval_set", lambda *_: made)
    monkeypatch.setattr(story, "hawk_deployment", lambda _: HawkDeployment(address=hawk.address, token=TOKEN))
    monkeypatch.setattr(story, "show_report", lambda *shown: Bar.rows.append(shown))
    for name in ("launch", "collect_logs", "deliver_logs"):
        monkeypatch.setattr(story, name, getattr(story, name).fn)

    def follow(run: hawk_run.HawkRun, **_: object) -> Any:
        return story_follow(run) or Done()

    story_follow = story.follow_run.fn
    monkeypatch.setattr(story, "follow_run", follow)
    monkeypatch.setenv("KEY", "sk-secret")

    def whole(log_dir: Path | None = None, block: str | None = None) -> RunReport:
        request = EvalRequest.model_validate(
            {"tasks": [TASK], "models": [MODEL], "secrets": ["KEY"], "log_dir": log_dir and str(log_dir)}
        )
        with disable_run_logger():
            return story.run_on_hawk(request, Ec2Config(), "default", block)

    return whole
