"""The registry login against a real engine and a real registry on loopback, with the right password and a wrong one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import CalledProcessError

import pytest

from bootstrap.registry import Credentials, RegistryLoginFailed, log_in, own_configuration
from tests.docker.conftest import Engine
from tests.docker.registry import TOKEN, USER, Registry

pytestmark = pytest.mark.docker


def test_what_is_logged_in_may_push_and_what_is_not_may_not(docker: Engine, registry: Registry, tmp_path: Path) -> None:
    login = own_configuration(tmp_path / "docker")
    env = {**os.environ, "DOCKER_CONFIG": str(login)}
    image = f"{registry.address}/fleet-examples-shell"
    docker.docker("tag", "fleet-examples-shell", image)
    try:
        assert log_in(registry.address, Credentials(USER, TOKEN), env).endswith(f"as {USER}")
        assert list(json.loads((login / "config.json").read_text())["auths"]) == [registry.address]
        logged_in = Engine({**docker.environment, "DOCKER_CONFIG": str(login)})
        logged_in.docker("push", "--quiet", image)
        nobody = Engine({**docker.environment, "DOCKER_CONFIG": str(own_configuration(tmp_path / "other"))})
        with pytest.raises(CalledProcessError):
            nobody.docker("pull", image)
    finally:
        docker.docker("image", "rm", image)


def test_a_wrong_password_is_told_in_dockers_words(docker: Engine, registry: Registry, tmp_path: Path) -> None:
    login = own_configuration(tmp_path / "docker")
    wrong = Credentials(USER, "not-the-token")
    with pytest.raises(RegistryLoginFailed) as failed:
        log_in(registry.address, wrong, {**os.environ, "DOCKER_CONFIG": str(login)})
    assert f"login to {registry.address} as {USER} failed: " in str(failed.value)
    assert "401 Unauthorized" in str(failed.value)
    assert "not-the-token" not in str(failed.value)
    assert "auths" not in json.loads((login / "config.json").read_text())


def test_a_registry_that_does_not_answer_is_told_as_one(docker: Engine, tmp_path: Path) -> None:
    env = {**os.environ, "DOCKER_CONFIG": str(own_configuration(tmp_path / "docker"))}
    with pytest.raises(RegistryLoginFailed, match="connection refused"):
        log_in("127.0.0.1:9", Credentials(USER, TOKEN), env)
