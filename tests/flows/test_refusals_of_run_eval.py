"""What `run_eval` refuses before anything is created: no Prefect server and no AWS are asked here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from fleet.aws.images import AmiNotReady
from fleet.backends.fleet import FleetBackend
from fleet.evals.listener import Nobody
from fleet.evals.registry import RegistryLoginIncomplete, RegistryLoginMissing
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import RunSecrets
from fleet.evals.setup_script import SetupScriptRefused
from flows import run_eval as story
from flows.run_eval import run_eval

BOTH = {"DOCKERHUB_USERNAME": "someone", "DOCKERHUB_TOKEN": "t"}


def a_request(**fields: Any) -> EvalRequest:
    return EvalRequest.model_validate({"tasks": ["a/b"], "models": ["m/n"], **fields})


@pytest.mark.parametrize("script", ["/no/such/setup.sh", "/"])
@pytest.mark.fault("request-refused")
def test_a_setup_script_that_is_none_ends_the_run_at_its_first_line(script: str) -> None:
    with pytest.raises(SetupScriptRefused):
        run_eval.fn(a_request(), Ec2Config(worker_setup=script))
    with pytest.raises(SetupScriptRefused):
        FleetBackend(Ec2Config(worker_setup=script), Nobody()).run(a_request())


class WentOn(Exception):
    """The run was not refused."""


@dataclass
class Planned:
    """A plan, as far as the run looks at it until it goes on."""

    needs_docker: bool


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a run of a plan that needs Docker (or not), on an account, with secrets; nothing else of the world is there."""

    def start(secrets: dict[str, str], *, docker: bool = True, estimate: bool = False, **account: Any) -> None:
        def go_on(*_: Any, **__: Any) -> None:
            raise WentOn

        monkeypatch.setattr(FleetAccount, "load", lambda _: FleetAccount(bucket="bucket", **account))
        monkeypatch.setattr(story, "run_secrets", lambda *_: RunSecrets(secrets))
        monkeypatch.setattr(story, "check_permissions", lambda *_, **__: None)
        monkeypatch.setattr(story, "make_plan", lambda *_: Planned(docker))
        monkeypatch.setattr(story, "identify", lambda _: None)
        monkeypatch.setattr(story, "Run", go_on)
        run_eval.fn(a_request(), Ec2Config(estimate=estimate))

    return start


@pytest.mark.fault("request-refused")
def test_a_run_that_needs_docker_without_a_login_is_refused(started: Any) -> None:
    with pytest.raises(RegistryLoginMissing):
        started({"OPENAI_API_KEY": "k"})
    with pytest.raises(RegistryLoginIncomplete, match="DOCKERHUB_TOKEN is missing"):
        started({"DOCKERHUB_USERNAME": "someone"})


@pytest.mark.parametrize(
    ("secrets", "more"),
    [
        pytest.param(BOTH, {}, id="secrets"),
        pytest.param(
            {}, {"docker_username_parameter": "/u", "docker_token_parameter": "/t"}, id="the account's parameters"
        ),
        pytest.param({}, {"registry_login": "optional"}, id="not required"),
        pytest.param({}, {"docker": False}, id="no Docker in the plan"),
        pytest.param({}, {"estimate": True}, id="only an estimate"),
    ],
)
def test_a_run_that_can_log_in_or_need_not_goes_on(started: Any, secrets: dict[str, str], more: dict[str, Any]) -> None:
    with pytest.raises(WentOn):
        started(secrets, **more)


class Unbegun:
    """A run that nobody may begin: from then on there is something to remove."""

    def __enter__(self) -> None:
        raise AssertionError("the run was begun")

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.fault("ami-unfit")
def test_an_image_that_cannot_be_launched_ends_the_run_before_anything_is_made(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejected(*_: object) -> None:
        raise AmiNotReady(
            parameter="", ami="ami-1", region="us-east-1", state="pending", reason="", why="it is pending"
        )

    def made(*_: object) -> None:
        raise AssertionError("something was made")

    with pytest.raises(WentOn):  # what `started` puts in place is there now
        started(BOTH)
    monkeypatch.setattr(story, "Run", lambda *_, **__: Unbegun())
    monkeypatch.setattr(story, "make_estimate", lambda _: None)
    monkeypatch.setattr(story, "approved", lambda *_: True)
    monkeypatch.setattr(story, "check_ami", rejected)
    for step in ("prepare", "launch", "follow", "collect_results"):
        monkeypatch.setattr(story, step, made)
    with pytest.raises(AmiNotReady):
        run_eval.fn(a_request(), Ec2Config(auto_confirm=True))


@pytest.mark.fault("request-refused")
def test_a_table_of_prices_that_is_none_is_refused_before_anything_is_packed(tmp_path: Path) -> None:
    from bootstrap.run_plan import plan_run
    from fleet.evals.rates import RatesRefused

    with pytest.raises(RatesRefused):
        plan_run(a_request(model_cost_config="/no/such.yaml"), tmp_path, slots=1)
    assert list(tmp_path.iterdir()) == []
