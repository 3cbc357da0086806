"""What a run's instances are given: from the block and the environment, with the values of settings, all checked at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blocks.account import FleetAccount
from blocks.secrets import WorkerSecrets, named_secrets, run_secrets
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import SecretsRefused


def a_request(**fields: Any) -> EvalRequest:
    return EvalRequest.model_validate({"tasks": ["t"], "models": ["m/m"], **fields})


def an_account(**fields: Any) -> FleetAccount:
    return FleetAccount(bucket="b", **fields)


@pytest.fixture
def block(monkeypatch: pytest.MonkeyPatch) -> str:
    kept = WorkerSecrets.model_validate({"values": {"OPENAI_API_KEY": "sk-block", "MORE": "more"}})
    monkeypatch.setattr(WorkerSecrets, "load", lambda name: kept)
    return "keys"


def test_a_blocks_values_the_environments_and_those_of_settings_come_together(
    block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-shell")
    monkeypatch.setenv("OTHER", "sk-other")
    (tmp_path / "linux.env").write_text("A=1\n")
    request = a_request(secrets=["OPENAI_API_KEY", "OTHER"], settings=[str(tmp_path / "linux"), str(tmp_path / "mac")])
    secrets = run_secrets(request, block, an_account().parameter_place("us-east-1"))
    assert secrets.documents("/own") == [
        ("/own.env.linux", {"linux": "A=1\n"}),
        ("/own", {"OPENAI_API_KEY": "sk-block", "MORE": "more", "OTHER": "sk-other"}),
    ]


def test_another_service_is_sent_what_the_request_names_and_no_more_of_the_block(
    block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-shell")
    monkeypatch.setenv("OTHER", "sk-other")
    secrets = named_secrets(a_request(secrets=["OPENAI_API_KEY", "OTHER"]), block)
    assert secrets.variables() == {"OPENAI_API_KEY": "sk-block", "OTHER": "sk-other"}
    assert named_secrets(a_request(), block).variables() == {}
    with pytest.raises(SecretsRefused, match=r"no value for NEVER_SET_KEY: .* the worker-secrets block 'keys'"):
        named_secrets(a_request(secrets=["NEVER_SET_KEY"]), block)


def test_everything_that_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NEVER_SET_KEY", raising=False)
    monkeypatch.setenv("LONG_KEY", "x" * 5000)
    (tmp_path / "linux.env").write_bytes(b"\xff")
    request = a_request(secrets=["NEVER_SET_KEY", "PATH", "LONG_KEY"], settings=[str(tmp_path / "linux")])
    with pytest.raises(SecretsRefused) as refused:
        run_secrets(request, None, an_account().parameter_place("us-east-1"))
    message = str(refused.value)
    for part in (
        "setting linux aren't UTF-8 text",
        "'PATH' can't be",
        "no value for NEVER_SET_KEY",
        "the secrets take",
    ):
        assert part in message


@pytest.mark.parametrize("allowed", [False, True])
def test_an_account_allows_larger_parameters(monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    monkeypatch.setenv("LONG_KEY", "x" * 5000)
    place = an_account(advanced_parameters=allowed).parameter_place("us-east-1")
    if allowed:
        assert run_secrets(a_request(secrets=["LONG_KEY"]), None, place)
    else:
        with pytest.raises(SecretsRefused, match="`advanced_parameters` in the Fleet Account block"):
            run_secrets(a_request(secrets=["LONG_KEY"]), None, place)


@pytest.mark.parametrize("path", ["no/slash", "/ends/with/", "/with space", "/" + "deep/" * 14 + "er", "/" + "x" * 950])
def test_an_accounts_path_that_ssm_does_not_take_is_refused_before_anything_exists(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Names are checked as long as they will get: with the run's and the instance's id."""
    monkeypatch.setenv("KEY", "x")
    with pytest.raises(SecretsRefused, match="SSM takes no parameter named"):
        run_secrets(a_request(secrets=["KEY"]), None, an_account(parameter_path=path).parameter_place("us-east-1"))
