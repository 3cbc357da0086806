"""The registry login with a fake `docker`: what is asked of it, what is said, and what is left where."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from bootstrap.commands import Said
from bootstrap.registry import (
    WAITS,
    Credentials,
    RegistryLoginFailed,
    RegistryParameterUnreadable,
    credentials,
    log_in,
    own_configuration,
)
from fleet.aws.failures import AwsRefused, Denied
from fleet.evals.registry import RegistryAccess, RegistryLoginIncomplete, RegistryLoginMissing
from tests.bootstrap.fake_commands import FakeCommands

SECRET = "dckr_pat_a-token-that-nobody-may-see"
BOTH = {"DOCKERHUB_USERNAME": "someone", "DOCKERHUB_TOKEN": SECRET}
ACCOUNT = RegistryAccess(username_parameter="/shared/user", token_parameter="/shared/token")


def nothing_is_read(name: str) -> str:
    raise AssertionError(f"{name} was read")


def no_wait(_: float) -> None:
    pass


def test_secrets_go_before_the_accounts_parameters() -> None:
    assert credentials(ACCOUNT, BOTH, nothing_is_read) == Credentials("someone", SECRET)


def test_each_part_that_the_secrets_lack_is_read_from_its_own_parameter() -> None:
    shared = {"/shared/user": "the-org\n", "/shared/token": f"{SECRET}\n"}
    assert credentials(ACCOUNT, {}, shared.__getitem__) == Credentials("the-org", SECRET)
    assert credentials(ACCOUNT, {"DOCKERHUB_USERNAME": "me"}, shared.__getitem__) == Credentials("me", SECRET)


def test_none_and_half_are_different_errors_and_nothing_is_read_for_them() -> None:
    with pytest.raises(RegistryLoginMissing):
        credentials(RegistryAccess(), {"OPENAI_API_KEY": "k"}, nothing_is_read)
    with pytest.raises(RegistryLoginIncomplete, match="DOCKERHUB_TOKEN is missing"):
        credentials(RegistryAccess(), {"DOCKERHUB_USERNAME": "me", "DOCKERHUB_TOKEN": ""}, nothing_is_read)


def test_where_it_is_optional_no_login_is_an_answer() -> None:
    assert credentials(RegistryAccess(login="optional"), {}, nothing_is_read) is None


def refusal(code: str) -> AwsRefused:
    return Denied(service="ssm", operation="GetParameter", code=code, target="/shared/user", why="not allowed")


def test_a_right_that_lags_is_waited_for_and_one_that_never_comes_is_named() -> None:
    waited: list[float] = []
    answers: list[str | AwsRefused] = [refusal("AccessDeniedException"), "someone", SECRET]

    def lagging(_: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, AwsRefused):
            raise answer
        return answer

    assert credentials(ACCOUNT, {}, lagging, sleep=waited.append) == Credentials("someone", SECRET)
    assert waited == [WAITS[0]]

    def never(_: str) -> str:
        raise refusal("AccessDeniedException")

    waited.clear()
    with pytest.raises(RegistryParameterUnreadable, match=r"/shared/user.*AccessDeniedException: not allowed"):
        credentials(ACCOUNT, {}, never, sleep=waited.append)
    assert waited == list(WAITS)


def test_a_parameter_that_is_empty_is_no_login() -> None:
    with pytest.raises(RegistryParameterUnreadable, match="it is empty"):
        credentials(ACCOUNT, {}, lambda _: " \n", sleep=no_wait)


@pytest.mark.parametrize(("registry", "end"), [("", ()), ("localhost:5000", ("localhost:5000",))])
def test_the_token_goes_by_standard_input_and_to_the_registry_that_is_named(
    registry: str, end: tuple[str, ...]
) -> None:
    docker = FakeCommands({"docker login": Said(0, "Login Succeeded\n")})
    told = log_in(registry, Credentials("someone", SECRET), {"PATH": "/bin"}, run=docker)
    (asked,) = docker.asked
    assert asked.argv == ("docker", "login", "--username", "someone", "--password-stdin", *end)
    assert asked.given == SECRET
    assert SECRET not in str(asked.env)
    assert told == f"logged in to {registry or 'Docker Hub'} as someone"


def test_a_failed_login_is_told_in_dockers_words_without_the_token() -> None:
    docker = FakeCommands(
        {"docker login": Said(1, err=f"WARNING!\nError: unauthorized: incorrect password {SECRET}\n")}
    )
    with pytest.raises(RegistryLoginFailed) as failed:
        log_in("", Credentials("someone", SECRET), {}, run=docker)
    assert "as someone failed: Error: unauthorized: incorrect password <token>" in str(failed.value)
    assert SECRET not in repr((failed.value, failed.value.__dict__, Credentials("someone", SECRET)))


def test_the_workers_configuration_is_its_own_and_keeps_the_machines_but_for_where_logins_go(tmp_path: Path) -> None:
    base = tmp_path / "home" / ".docker"
    (base / "cli-plugins").mkdir(parents=True)
    (base / "config.json").write_text(
        json.dumps({"credsStore": "desktop", "credHelpers": {"ecr": "ecr-login"}, "auths": {}})
    )
    before = (base / "config.json").read_bytes()
    folder = own_configuration(tmp_path / "docker", {"HOME": str(tmp_path / "home")})
    assert json.loads((folder / "config.json").read_text()) == {"credHelpers": {"ecr": "ecr-login"}, "auths": {}}
    assert (folder / "cli-plugins").resolve() == base / "cli-plugins"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "config.json").stat().st_mode) == 0o600
    assert (base / "config.json").read_bytes() == before
    assert own_configuration(folder, {"HOME": str(tmp_path / "home")}) == folder, "a second time is harmless"


@pytest.mark.parametrize("content", [None, "no json", "[1]"])
def test_a_machine_without_a_usable_configuration_has_an_empty_one(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    folder = own_configuration(tmp_path / "docker", {"DOCKER_CONFIG": str(tmp_path)})
    assert json.loads((folder / "config.json").read_text()) == {}
