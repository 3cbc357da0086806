from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.local import CloudNotDown, CloudNotUp, local
from fleet.local import cloud
from fleet.local.cloud import CloudNotStarted, CloudStatus, LocalCloud, PartStatus, Say

UP = LocalCloud(name="a", folder=Path("/clouds/a"), aws_endpoint="http://aws:1", prefect_api="http://prefect:2/api")


def status_of(name: str, health: str) -> CloudStatus:
    part = PartStatus(part="server", pid=7, health=health, address="http://p", memory=2**20, restarts=0, log="/l")
    return CloudStatus(name, "ready", Path("/clouds"), "http://aws:1", "http://prefect:2/api", (part,))


class Clouds:
    """Local clouds that are nothing but names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: dict[str, str] = {}
        self.left: list[str] = []
        for name in ("up", "down", "find", "names", "status"):
            monkeypatch.setattr(cloud, name, getattr(self, name))

    def up(self, name: str, *, controllers: bool, say: Say) -> LocalCloud:
        if name == "broken":
            raise CloudNotStarted(cloud=name, part="server", why="ended with exit code 1", log="/logs/server.log")
        assert controllers, "what a person starts also runs what they start from the UI"
        say("starting")
        self.known[name] = "ok"
        return UP

    def down(self, name: str) -> list[str]:
        self.known.pop(name, None)
        return self.left

    def find(self, name: str) -> LocalCloud | None:
        return UP if name in self.known else None

    def names(self) -> list[str]:
        return sorted(self.known)

    def status(self, name: str) -> CloudStatus | None:
        return status_of(name, self.known[name]) if name in self.known else None


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> Clouds:
    return Clouds(monkeypatch)


def test_up_prints_the_addresses_on_stdout_and_its_progress_on_stderr(clouds: Clouds) -> None:
    done = CliRunner().invoke(local, ["up", "--name", "a"])
    assert done.exit_code == 0
    assert "http://prefect:2\n" in done.stdout
    assert "http://aws:1" in done.stdout
    assert "starting" in done.stderr
    assert "starting" not in done.stdout


def test_up_prints_one_document_when_asked(clouds: Clouds) -> None:
    document = json.loads(CliRunner().invoke(local, ["up", "--name", "a", "--json"]).stdout)
    assert document["prefect_ui"] == "http://prefect:2"
    assert document["aws_endpoint"] == "http://aws:1"


def test_a_failed_start_names_the_part_and_its_log(clouds: Clouds) -> None:
    done = CliRunner().invoke(local, ["up", "--name", "broken"])
    assert isinstance(done.exception, CloudNotStarted)
    assert str(done.exception).endswith("server ended with exit code 1; see /logs/server.log")


def test_down_says_what_it_did(clouds: Clouds) -> None:
    assert "there is no local cloud a" in CliRunner().invoke(local, ["down", "--name", "a"]).stderr
    clouds.known["a"] = "ok"
    assert "the local cloud a is down" in CliRunner().invoke(local, ["down", "--name", "a"]).stderr


def test_down_fails_by_naming_what_is_left(clouds: Clouds) -> None:
    clouds.left = ["process 7"]
    done = CliRunner().invoke(local, ["down"])
    assert isinstance(done.exception, CloudNotDown)
    assert "could not stop process 7" in str(done.exception)


@pytest.mark.parametrize(
    ("known", "arguments", "healthy"),
    [
        ({}, [], False),
        ({"a": "ok"}, [], True),
        ({"a": "ok", "b": "gone"}, [], False),
        ({"a": "ok", "b": "gone"}, ["--name", "a"], True),
        ({"a": "ok"}, ["--name", "c"], False),
    ],
)
def test_status_answers_whether_all_is_well(
    clouds: Clouds, known: dict[str, str], arguments: list[str], healthy: bool
) -> None:
    clouds.known.update(known)
    done = CliRunner().invoke(local, ["status", *arguments, "--json"], standalone_mode=False)
    assert done.return_value == (0 if healthy else 1)
    assert all(one["healthy"] == (known[one["name"]] == "ok") for one in json.loads(done.stdout)["clouds"])


def test_status_elsewhere_than_on_a_terminal_is_one_plain_line_a_part(clouds: Clouds) -> None:
    clouds.known["a"] = "ok"
    lines = CliRunner().invoke(local, ["status"]).stdout.splitlines()
    assert lines[1].split("\t")[:4] == ["server", "ok", "7", "1 MB"]


def test_env_prints_lines_for_a_shell(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds.known["a"] = "ok"
    monkeypatch.setenv("AWS_PROFILE", "theirs")
    lines = CliRunner().invoke(local, ["env", "--name", "a"]).stdout.splitlines()
    assert "unset AWS_PROFILE" in lines
    assert "export PREFECT_API_URL=http://prefect:2/api" in lines


def test_env_of_a_cloud_that_is_not_up_names_the_command(clouds: Clouds) -> None:
    done = CliRunner().invoke(local, ["env", "--name", "b"])
    assert isinstance(done.exception, CloudNotUp)
    assert "fleet local up --name b" in str(done.exception)
