"""What ends a run on Hawk before a flow run exists, and what the flow is called with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS, temporary_settings

from blocks.ec2_config import Ec2Config
from blocks.hawk import HawkDeployment, HawkUnknown
from blocks.secrets import WorkerSecrets
from fleet.account.change import ServerUnreachable
from fleet.backends import hawk as room
from fleet.backends.hawk import HawkBackend
from fleet.errors import FleetError
from fleet.evals.delivery import LogDirRefused
from fleet.evals.listener import Nobody
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import SecretsRefused
from fleet.hawk.api import HawkRefusedLogin, HawkUnreachable
from fleet.hawk.refused import HawkRefused
from tests.hawk_server import HANG_UP, TOKEN, HawkServer, hawk_server


class Follower(Nobody):
    """Hears a run."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []

    def stage(self, name: str) -> None:
        self.stages.append(name)

    def warn(self, line: str) -> None:
        self.warnings.append(line)


@pytest.fixture
def hawk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HawkServer]:
    """A deployment that the environment names, since Prefect has no block."""

    def load(name: str) -> None:
        raise ValueError(f"Unable to find block document named {name}")

    with hawk_server() as server:
        monkeypatch.setattr(HawkDeployment, "load", staticmethod(load))
        monkeypatch.setattr(WorkerSecrets, "load", staticmethod(load))
        monkeypatch.setenv("HAWK_API_URL", server.address)
        monkeypatch.setenv("HAWK_ACCESS_TOKEN", TOKEN)
        yield server


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the flow was called with; it isn't run."""
    calls: list[dict[str, Any]] = []

    def call(request: EvalRequest, _: object, **parameters: Any) -> RunReport:
        calls.append({"request": request, **parameters})
        return RunReport(run="r", outcome="success")

    monkeypatch.setattr(room, "call_run_eval", call)
    return calls


def a_request(**fields: Any) -> EvalRequest:
    whole = {"tasks": ["evals/plain"], "models": ["openai/gpt-5"], "packages": ["evals==1", "openai==2"], **fields}
    return EvalRequest.model_validate(whole)


@pytest.mark.parametrize("upload", [True, False])
def test_the_flow_is_called_for_hawk_once_hawk_has_answered(
    upload: bool, hawk: HawkServer, called: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerSecrets, "load", staticmethod(lambda _: WorkerSecrets.model_validate({"values": {}})))
    config, follower = Ec2Config(new_fleet=True, max_workers=3), Follower()
    HawkBackend(config, follower, worker_secrets="keys").run(a_request(log_dir="my/logs"), upload=upload)
    (call,) = called
    assert call["request"].log_dir == ("my/logs" if upload else None)
    rest = {name: value for name, value in call.items() if name != "request"}
    assert rest == {"config": config, "worker_secrets": "keys", "backend": "hawk", "hawk": "default"}
    assert [line for line in follower.warnings if "max_workers" in line]
    assert hawk.asked("job-status") == 1
    assert hawk.posted == []


@pytest.mark.fault("request-refused")
@pytest.mark.parametrize(
    ("request_", "config", "error", "said"),
    [
        (a_request(tasks=["file.py@plain"]), Ec2Config(), HawkRefused, r"file\.py@plain is in a file"),
        (a_request(), Ec2Config(max_cost=5), HawkRefused, "max_cost: Hawk has no such limit"),
        (a_request(source="/nowhere"), Ec2Config(), HawkRefused, "the source /nowhere can't be sent"),
        (a_request(secrets=["NEVER_SET_KEY"]), Ec2Config(), SecretsRefused, "no value for NEVER_SET_KEY"),
        (a_request(log_dir="ftp://host"), Ec2Config(), LogDirRefused, "ftp://"),
    ],
)
def test_what_hawk_cannot_keep_is_refused_before_anybody_is_asked(
    request_: EvalRequest,
    config: Ec2Config,
    error: type[FleetError],
    said: str,
    hawk: HawkServer,
    called: list[dict[str, Any]],
) -> None:
    with pytest.raises(error, match=said) as refused:
        HawkBackend(config, Follower()).run(request_)
    assert refused.value.exit_code == 2
    assert (hawk.calls, called) == ([], [])


@pytest.mark.fault("hawk-login")
def test_a_login_that_is_not_good_ends_the_run_before_it_exists(hawk: HawkServer, called: list[dict[str, Any]]) -> None:
    hawk.tokens = set()
    with pytest.raises(HawkRefusedLogin):
        HawkBackend(Ec2Config(), Follower()).run(a_request())
    assert called == []


@pytest.mark.fault("hawk-no-answer")
def test_a_deployment_that_does_not_answer_ends_the_run_before_it_exists(
    hawk: HawkServer, called: list[dict[str, Any]]
) -> None:
    hawk.fail("job-status", HANG_UP)
    with pytest.raises(HawkUnreachable):
        HawkBackend(Ec2Config(), Follower()).run(a_request())
    assert called == []


@pytest.mark.fault("request-refused")
def test_a_deployment_that_nobody_knows_is_refused(hawk: HawkServer, called: list[dict[str, Any]]) -> None:
    with pytest.raises(HawkUnknown, match="staging"):
        HawkBackend(Ec2Config(), Follower(), deployment="staging").run(a_request())
    assert called == []


@pytest.mark.fault("request-refused")
def test_a_block_of_secrets_that_is_not_there_or_lacks_one_ends_the_run_before_it_exists(
    hawk: HawkServer, called: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = HawkBackend(Ec2Config(), Follower(), worker_secrets="typo")
    with pytest.raises(SecretsRefused, match=r"the worker-secrets block 'typo' can't be used: there is no such block"):
        backend.run(a_request())
    monkeypatch.setattr(WorkerSecrets, "load", staticmethod(lambda _: WorkerSecrets.model_validate({"values": {}})))
    with pytest.raises(SecretsRefused, match=r"no value for NEVER_SET_KEY: .* block 'typo'") as refused:
        backend.run(a_request(secrets=["NEVER_SET_KEY"]))
    assert refused.value.exit_code == 2
    assert (hawk.calls, called) == ([], [])


@pytest.mark.parametrize(
    ("configured", "error", "said"),
    [
        ("http://prefect/api", httpx.ConnectError("refused"), "http://prefect/api doesn't answer: refused"),
        (None, RuntimeError("Timed out while attempting"), "Prefect's own .* doesn't answer: Timed out"),
    ],
)
def test_a_prefect_server_that_is_away_is_named(
    configured: str | None, error: Exception, said: str, hawk: HawkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def load(_: str) -> None:
        given.append(PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value())
        raise error

    monkeypatch.setattr(HawkDeployment, "load", staticmethod(load))
    follower = Follower()
    with temporary_settings({PREFECT_API_URL: configured}), pytest.raises(ServerUnreachable, match=said):
        HawkBackend(Ec2Config(), follower).run(a_request())
    assert given == [room.OWN_SERVER_S]
    assert follower.stages == ([] if configured else ["Starting a Prefect server for this run"])


def test_no_name_is_looked_up_before_hawk_has_installed_it() -> None:
    assert not HawkBackend(Ec2Config(), Follower()).resolvable("evals/plain")
