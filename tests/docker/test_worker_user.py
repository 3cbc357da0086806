"""A jobs' user who isn't root, for real: a user of this system made for the test, and an engine that they may ask by a group."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap import worker_user
from bootstrap.commands import run_command
from bootstrap.registry import Credentials, log_in, own_configuration
from bootstrap.worker_user import WorkerUserUnfit, engine_socket, hand_over, prepare
from tests.docker.conftest import Engine
from tests.docker.registry import TOKEN, USER, Registry

pytestmark = pytest.mark.docker

NAME = f"fleet-test-user-{os.getpid()}"
GROUP = f"fleet-test-group-{os.getpid()}"
"""Of this process alone, which removes them; Linux takes 32 characters."""


@pytest.fixture
def somebody(docker: Engine) -> Iterator[str]:
    """A user with a home of their own, and a group that owns the engine's socket. Both are gone afterwards."""
    socket = engine_socket(os.environ.get("DOCKER_HOST", ""))
    if os.geteuid() != 0 or shutil.which("useradd") is None or not docker.environment or socket is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "needs root, useradd, and an engine of its own"
        )
    remove()
    subprocess.run(["groupadd", "--system", GROUP], check=True)
    subprocess.run(["useradd", "--system", "--create-home", "--home-dir", f"/home/{NAME}", NAME], check=True)
    before, mode = socket.stat().st_gid, stat.S_IMODE(socket.parent.stat().st_mode)
    shutil.chown(socket, group=GROUP)
    socket.chmod(0o660)
    socket.parent.chmod(0o711)
    try:
        yield NAME
    finally:
        os.chown(socket, -1, before)
        socket.parent.chmod(mode)
        remove()


def remove() -> None:
    for command in (["userdel", "--remove", NAME], ["groupdel", GROUP]):
        subprocess.run(command, check=False, capture_output=True)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may go through, as an instance's is."""
    folder = Path("/tmp") / f"fleet-test-{os.getpid()}"  # noqa: S108 - pytest's own folders are closed to others
    folder.mkdir(mode=0o711)
    yield folder
    shutil.rmtree(folder)


def variables(folder: Path) -> dict[str, str]:
    """What jobs of an instance with this folder see. Docker's client may lie in a cache that is root's: it gets a copy."""
    (folder / "bin").mkdir(mode=0o755)
    shutil.copy(str(shutil.which("docker")), folder / "bin" / "docker")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DOCKER_CONFIG": str(own_configuration(folder / "docker"))}


def test_they_reach_the_engine_with_a_login_that_only_they_can_read(
    somebody: str, registry: Registry, open_folder: Path
) -> None:
    env, login = variables(open_folder), open_folder / "docker"
    log_in(registry.address, Credentials(USER, TOKEN), env)
    lines = list(prepare(somebody, env, docker=login, bin_folder=open_folder / "bin", sudoers=open_folder / "none"))
    assert f"{somebody} is in the group {GROUP} now" in lines
    assert any(line.startswith(f"{somebody} reaches Docker ") for line in lines)
    file = login / "config.json"
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (pwd.getpwnam(somebody).pw_uid, 0o600)
    assert registry.address in file.read_text()
    seen = run_command(["cat", str(file)], user="nobody")
    assert "Permission denied" in seen.why
    run = [
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "fleet-examples-shell",
        "/bin/sh",
        "-c",
        "echo from a container",
    ]
    assert run_command(run, env={**env, "HOME": f"/home/{somebody}"}, user=somebody).out == "from a container\n"


def test_an_engine_that_lets_nobody_in_but_root_is_told(
    somebody: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_user, "group_to_join", lambda user, socket: None)
    env, login = variables(open_folder), open_folder / "docker"
    with pytest.raises(WorkerUserUnfit, match=r"engine doesn't answer them: .*permission denied"):
        list(prepare(somebody, env, docker=login, bin_folder=open_folder / "bin", sudoers=open_folder / "none"))


def test_they_may_write_where_jobs_write(somebody: str, open_folder: Path) -> None:
    tree = open_folder / "environment"
    (tree / "source").mkdir(parents=True)
    write = ["touch", str(tree / "source" / "a-file")]
    assert run_command(write, user=somebody).code
    hand_over(tree, somebody)
    assert run_command(write, user=somebody).code == 0
