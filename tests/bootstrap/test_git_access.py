"""git's way to GitHub, asked of the real git and ssh-keygen. Nothing here leaves the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from bootstrap import uv
from bootstrap.clockwork import real_clockwork
from bootstrap.environment import JobEnvironment
from bootstrap.git_access import git_variables, write_known_hosts
from bootstrap.github_keys import KEYS
from bootstrap.instance import Instance
from tests.worker_order import ORDER

SECRET = "ghp_a-token-that-nobody-may-see"


def ask(what: str, host: str, env: dict[str, str], *, protocol: str = "https") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "credential", what],
        input=f"protocol={protocol}\nhost={host}\n\n",
        env={"PATH": os.environ["PATH"], "HOME": env.get("HOME", "/"), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return git_variables({}, write_known_hosts(tmp_path), token=True)


def test_git_gets_the_token_for_github_when_it_asks(variables: dict[str, str]) -> None:
    said = ask("fill", "github.com", {**variables, "GH_TOKEN": SECRET})
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[-2:] == ["username=x-access-token", f"password={SECRET}"]


@pytest.mark.parametrize(
    ("host", "protocol"), [("gitlab.com", "https"), ("github.com.evil.example", "https"), ("github.com", "http")]
)
def test_nobody_else_is_given_it(variables: dict[str, str], host: str, protocol: str) -> None:
    said = ask("fill", host, {**variables, "GH_TOKEN": SECRET}, protocol=protocol)
    assert said.returncode != 0, "there is no other helper, and no terminal to ask"
    assert SECRET not in said.stdout + said.stderr


def test_the_token_is_in_no_variable_but_its_own(variables: dict[str, str]) -> None:
    assert SECRET not in str(variables)
    assert "$GH_TOKEN" in str(variables)


def test_a_helper_that_keeps_what_it_is_told_is_not_told(variables: dict[str, str], tmp_path: Path) -> None:
    """`git credential approve` is what git does after a fetch: the machine's `store` would write the token to its disk."""
    (tmp_path / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    given = f"protocol=https\nhost=github.com\nusername=x-access-token\npassword={SECRET}\n\n"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GH_TOKEN": SECRET}
    for kept, more in ((True, {}), (False, variables)):
        (tmp_path / ".git-credentials").unlink(missing_ok=True)
        subprocess.run(["git", "credential", "approve"], input=given, env={**env, **more}, text=True, check=True)
        assert (tmp_path / ".git-credentials").exists() is kept


def test_configuration_that_came_by_the_environment_stays(tmp_path: Path) -> None:
    before = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "someone"}
    env = {**before, **git_variables(before, write_known_hosts(tmp_path), token=True)}
    said = subprocess.run(
        ["git", "config", "--list"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **env},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "user.name=someone" in said
    assert "credential.https://github.com.helper=!f()" in said
    assert f"GlobalKnownHostsFile={tmp_path}/github_known_hosts /etc/ssh/ssh_known_hosts" in said


def test_without_a_token_there_is_no_helper_and_still_the_host_keys(tmp_path: Path) -> None:
    variables = git_variables({}, write_known_hosts(tmp_path), token=False)
    assert "credential" not in str(variables)
    assert "core.sshCommand" in variables.values()
    assert variables["GIT_TERMINAL_PROMPT"] == "0"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's ssh-keygen")
def test_the_host_keys_are_those_whose_fingerprints_github_publishes(tmp_path: Path) -> None:
    path = write_known_hosts(tmp_path)
    said = subprocess.run(["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1].removeprefix("SHA256:") for line in said.splitlines()} == {
        "+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
        "p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM",
        "uNiVztksCsDhcc0u9e8BujQXVUpKZIDTMczCvj3tD2s",
    }
    assert len(said.splitlines()) == len(KEYS)
    found = subprocess.run(["ssh-keygen", "-F", "github.com", "-f", str(path)], capture_output=True, check=False)
    assert found.returncode == 0


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's ssh")
def test_ssh_reads_the_command_as_it_is_meant(tmp_path: Path) -> None:
    variables = git_variables({}, write_known_hosts(tmp_path), token=False)
    command = next(value for value in variables.values() if value.startswith("ssh "))
    said = subprocess.run(["sh", "-c", f"{command} -G github.com"], capture_output=True, text=True, check=True).stdout
    assert f"globalknownhostsfile {tmp_path}/github_known_hosts /etc/ssh/ssh_known_hosts" in said
    assert "batchmode yes" in said


# On an instance

FAKE_UV = """#!/bin/sh
printf 'protocol=https\\nhost=github.com\\n\\n' | git credential fill
printf 'protocol=https\\nhost=gitlab.com\\n\\n' | git credential fill || echo nothing for others
echo "another secret: ${OPENAI_API_KEY:-none}"
"""
"""A uv that needs a private repository: it calls git, which asks for a password."""


@pytest.mark.parametrize("token", [True, False])
def test_the_environment_is_built_with_the_token_for_github_and_with_no_other_secret(
    token: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "uv"
    program.write_text(FAKE_UV)
    program.chmod(0o755)
    environment = JobEnvironment(spec=ORDER.environment, python=tmp_path / "venv" / "bin" / "python", source=None)
    answers: list[str] = []

    def build(*_: object, **__: object) -> JobEnvironment:
        answers.append(uv.run_uv([], cwd=tmp_path).stdout)
        return environment

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(uv, "uv_program", lambda: str(program))
    monkeypatch.setattr("bootstrap.environment.build", build)
    monkeypatch.setattr("bootstrap.instance.resolved_locations", lambda _: iter(()))
    said: list[str] = []

    async def main() -> dict[str, str]:
        instance = Instance(
            ORDER, instance_id="i-0", worker="w", say=said.append, clockwork=real_clockwork(), folder=tmp_path
        )
        instance.secrets.keep({"OPENAI_API_KEY": "sk-1", **({"GH_TOKEN": "ghp_1"} if token else {})})
        assert await instance.install_code() is environment
        return instance.runner_environment()

    jobs = anyio.run(main)
    assert "another secret: none" in answers[0]
    assert "nothing for others" in answers[0]
    assert ("username=x-access-token\npassword=ghp_1\n" in answers[0]) == token
    assert ("GH_TOKEN" in jobs) == token
    assert "GIT_CONFIG_COUNT" in jobs, "jobs reach GitHub as uv did"
    assert "ghp_1" not in "".join(said)
