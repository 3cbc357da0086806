"""Where the token comes from, in order; and what a person reads where there is none."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.hawk.api import HawkLoginMissing
from fleet.hawk.tokens import Tokens, expiry
from tests.hawk_server import a_token

ADDRESS = "https://api.hawk.example.org"


def environ(folder: Path, script: str | None, **more: str) -> dict[str, str]:
    """An environment whose only commands are the shell's and, with a script, `hawk`."""
    if script is not None:
        command = folder / "hawk"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", **more}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Where a program is looked for is up to this process's own PATH.
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_block_s_token_counts_before_the_environment_s_before_the_command_s(folder: Path) -> None:
    command = environ(folder, 'echo "from-command-$2"')
    both = command | {"HAWK_ACCESS_TOKEN": " from-environment\n"}
    assert Tokens(ADDRESS, "from-block", both).access() == "from-block"
    assert Tokens(ADDRESS, "", both).access() == "from-environment"
    assert Tokens(ADDRESS, "", command).access() == "from-command-access-token"


def test_the_command_is_asked_about_this_deployment_each_time(folder: Path) -> None:
    source = Tokens(ADDRESS, "", environ(folder, f'echo x >> {folder}/asked; echo "$1 $2 $HAWK_API_URL"'))
    assert source.access() == ADDRESS
    source.access()
    assert (folder / "asked").read_text() == "x\nx\n"


def test_the_environment_is_read_when_the_token_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever renews the variable in a long run is heard."""
    source = Tokens(ADDRESS)
    for token in ("first", "second"):
        monkeypatch.setitem(os.environ, "HAWK_ACCESS_TOKEN", token)
        assert source.access() == token


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "there is no command `hawk`"),
        ("echo 'Error: Not logged in. Run hawk login.' >&2; exit 1", "says: Not logged in. Run hawk login. Set"),
        ("exit 3", "says: exit code 3"),
        ("exit 0", "printed none"),
    ],
)
def test_no_token_is_one_line_with_the_ways_to_get_one(folder: Path, script: str | None, why: str) -> None:
    with pytest.raises(HawkLoginMissing) as raised:
        Tokens(ADDRESS, "", environ(folder, script)).access()
    said = str(raised.value)
    assert why in said
    assert ADDRESS in said
    assert said.count("\n") == 0
    assert raised.value.exit_code == 2


def test_a_command_that_hangs_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.hawk.tokens.COMMAND_S", 0.05)
    with pytest.raises(HawkLoginMissing, match="didn't end within"):
        Tokens(ADDRESS, "", environ(folder, "exec sleep 5")).access()


def test_only_a_login_has_what_a_runner_renews_its_token_by(folder: Path) -> None:
    """With another's token it would renew another's login."""
    command = environ(folder, 'echo "$2"')
    assert Tokens(ADDRESS, "", command).renewal() == "refresh-token"
    assert Tokens(ADDRESS, "from-block", command).renewal() == ""
    assert Tokens(ADDRESS, "", command | {"HAWK_ACCESS_TOKEN": "from-environment"}).renewal() == ""
    assert Tokens(ADDRESS, "", environ(folder, "exit 1")).renewal() == ""


def test_a_token_says_itself_when_it_ends() -> None:
    assert expiry(a_token(exp=1_800_000_000)) == datetime(2027, 1, 15, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "token", ["", "opaque", "a.b", "a.!!!.c", a_token(), a_token(exp="soon"), a_token(exp=1e30), "a.WzFd.c"]
)
def test_a_token_that_does_not_say_when_it_ends_has_no_end(token: str) -> None:
    assert expiry(token) is None


def test_tokens_are_not_shown() -> None:
    assert "hush" not in repr(Tokens(ADDRESS, "hush"))
