from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bootstrap.host import (
    AddressPoolWrong,
    DockerUnreachable,
    HostUnfit,
    check_docker,
    raise_inotify_limit,
    version,
)

POOL = [{"Base": "10.224.0.0/11", "Size": 24}]
GOOD = {"ServerVersion": "26.1.5+dfsg1", "DefaultAddressPools": POOL}
FILE_POOL = json.dumps({"default-address-pools": [{"base": "10.224.0.0/11", "size": 24}]})


class FakeDocker:
    """The command `docker`, as far as a host step asks it."""

    def __init__(self, info: Any, compose: str | None = "2.26.1-1") -> None:
        self.info = info
        self.compose = compose

    def __call__(self, arguments: list[str]) -> str:
        if arguments[0] == "info":
            if isinstance(self.info, Exception):
                raise self.info
            return json.dumps(self.info)
        assert arguments == ["compose", "version", "--short"]
        if self.compose is None:
            raise DockerUnreachable(why="docker: 'compose' is not a docker command")
        return f"{self.compose}\n"


def test_an_engine_started_with_flags_is_believed_without_a_file(tmp_path: Path) -> None:
    facts = check_docker(run=FakeDocker(GOOD), daemon_file=tmp_path / "daemon.json")
    assert (facts.engine, facts.compose) == ("26.1.5+dfsg1", "2.26.1-1")


def test_an_engine_that_names_no_pool_is_judged_by_the_file(tmp_path: Path) -> None:
    file = tmp_path / "daemon.json"
    file.write_text(FILE_POOL)
    check_docker(run=FakeDocker({**GOOD, "DefaultAddressPools": None}), daemon_file=file)


ROWS = [
    pytest.param(
        {**GOOD, "DefaultAddressPools": None}, "2.26.1", None, "Docker's own (the engine names none", id="none"
    ),
    pytest.param(
        {**GOOD, "DefaultAddressPools": [{"Base": "10.0.0.0/8", "Size": 16}]},
        "2.26.1",
        FILE_POOL,
        "10.0.0.0/8 in /16s (by the engine's answer)",
        id="the engine beats the file",
    ),
    pytest.param(
        {**GOOD, "DefaultAddressPools": None},
        "2.26.1",
        json.dumps({"default-address-pools": [{"base": "10.224.0.0/11", "size": 20}]}),
        "10.224.0.0/11 in /20s (by /etc/docker/daemon.json)",
        id="too large networks",
    ),
    pytest.param({**GOOD, "ServerVersion": "20.10.24"}, "2.26.1", None, "engine is 20.10.24; Inspect", id="old engine"),
    pytest.param(GOOD, "2.20.3", None, "compose plugin is 2.20.3; Inspect", id="old compose"),
    pytest.param(GOOD, None, None, "compose plugin is not installed; Inspect", id="no compose"),
    pytest.param({"ServerErrors": "no"}, "2.26.1", None, "it gave no version", id="errors in another form"),
    pytest.param({**GOOD, "ServerVersion": {"a": 1}}, "2.26.1", None, "engine is {'a': 1}", id="no version"),
    pytest.param(
        {**GOOD, "DefaultAddressPools": [{"Base": "10.224.0.0/11", "Size": "wide"}]},
        "2.26.1",
        None,
        "10.224.0.0/11 in /0s",
        id="no size",
    ),
    pytest.param({"ServerErrors": ["permission denied"]}, "2.26.1", None, "permission denied", id="no permission"),
    pytest.param(
        DockerUnreachable(why="Cannot connect to the Docker daemon"), "2", None, "Cannot connect", id="no engine"
    ),
]


@pytest.mark.parametrize(("info", "compose", "file", "says"), ROWS)
def test_an_unfit_host_is_refused_with_the_reason_and_what_helps(
    info: Any, compose: str | None, file: str | None, says: str, tmp_path: Path
) -> None:
    daemon_file = tmp_path / "daemon.json"
    if file:
        daemon_file.write_text(file)
    with pytest.raises(HostUnfit) as caught:
        check_docker(run=FakeDocker(info, compose), daemon_file=daemon_file)
    assert says in str(caught.value)
    assert any(help_ in str(caught.value) for help_ in ("worker image", "Upgrade"))


def test_the_message_about_the_pool_holds_the_line_to_write(tmp_path: Path) -> None:
    with pytest.raises(AddressPoolWrong) as caught:
        check_docker(run=FakeDocker({**GOOD, "DefaultAddressPools": None}), daemon_file=tmp_path / "none.json")
    assert FILE_POOL in str(caught.value)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("26.1.5+dfsg1", (26, 1, 5)), ("v2.21", (2, 21, 0)), ("24.0.6", (24, 0, 6)), ("dev", ()), ("", ())],
)
def test_versions_are_read_as_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers


def test_the_inotify_limit_is_raised_where_it_is_low(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    assert raise_inotify_limit(limit) == "inotify instances: raised from 128 to 8192"
    assert raise_inotify_limit(limit) == "inotify instances: 8192, enough"


def test_a_limit_that_may_not_be_raised_stops_nothing_and_says_the_command(tmp_path: Path) -> None:
    assert "sysctl -w fs.inotify.max_user_instances=8192" in raise_inotify_limit(tmp_path / "absent")
