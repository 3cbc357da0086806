from __future__ import annotations

import os
from pathlib import Path

import pytest

from bootstrap import uv
from bootstrap.job_variables import JobVariables
from bootstrap.secrets import Secrets
from bootstrap.worker_setup import Taken

MACHINE = {
    "PATH": "/bin",
    "UV_CACHE_DIR": "/opt/uv-cache",
    "UV_PYTHON_INSTALL_DIR": "/opt/uv-python",
    "PREFECT_API_KEY": "pnu_1",
    "FLEET_INSTANCE_ID": "i-0",
    "DOCKERHUB_TOKEN": "of the machine",
}


@pytest.fixture
def variables() -> JobVariables:
    return JobVariables(Secrets({"OPENAI_API_KEY": "sk-1", "DOCKERHUB_USERNAME": "u", "DOCKERHUB_TOKEN": "t"}))


def test_the_credentials_of_the_registry_are_dropped_and_its_login_is_found(variables: JobVariables) -> None:
    variables.add({"DOCKER_CONFIG": "/own/docker"})
    assert variables.environment(MACHINE) == {
        "PATH": "/bin",
        "UV_CACHE_DIR": "/opt/uv-cache",
        "UV_PYTHON_INSTALL_DIR": "/opt/uv-python",
        "OPENAI_API_KEY": "sk-1",
        "DOCKER_CONFIG": "/own/docker",
    }


def test_another_user_has_a_cache_of_their_own_and_the_machines_pythons(variables: JobVariables) -> None:
    seen = variables.environment(MACHINE, of_another_user=True)
    assert "UV_CACHE_DIR" not in seen
    assert seen["UV_PYTHON_INSTALL_DIR"] == "/opt/uv-python"


def test_folders_of_programs_go_in_front(variables: JobVariables) -> None:
    variables.put_in_front(Path("/own/bin"))
    assert variables.environment(MACHINE)["PATH"] == f"/own/bin{os.pathsep}/bin"
    assert variables.environment({})["PATH"] == f"/own/bin{os.pathsep}{os.defpath}"


def test_what_the_setup_script_left_goes_before_all_and_may_take_away(variables: JobVariables) -> None:
    variables.add({"A": "of a step"})
    variables.take(Taken({"A": "of the script", "PATH": "/sandbox:/bin"}, frozenset({"OPENAI_API_KEY"})))
    seen = variables.environment(MACHINE)
    assert (seen["A"], seen["PATH"]) == ("of the script", "/sandbox:/bin")
    assert "OPENAI_API_KEY" not in seen


def test_secrets_that_are_forgotten_are_seen_no_more() -> None:
    secrets = Secrets({"OPENAI_API_KEY": "sk-1"})
    variables = JobVariables(secrets)
    secrets.forget()
    assert variables.environment({}) == {}


def test_uv_sees_a_token_for_the_length_of_a_block_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "uv"
    program.write_text('#!/bin/sh\necho "token: $GH_TOKEN, $MORE"\n')
    program.chmod(0o755)
    monkeypatch.setattr(uv, "uv_program", lambda: str(program))
    monkeypatch.delenv("GH_TOKEN", raising=False)
    with uv.uv_sees({"GH_TOKEN": "ghp_1"}):
        assert uv.run_uv([], cwd=tmp_path, variables={"MORE": "and more"}).stdout == "token: ghp_1, and more\n"
    assert uv.run_uv([], cwd=tmp_path).stdout == "token: , \n"
    assert "GH_TOKEN" not in os.environ
