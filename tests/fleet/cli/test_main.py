from __future__ import annotations

import subprocess
import sys

import click
import pytest

from fleet.cli.main import COMMANDS, code_of, fleet
from fleet.errors import FleetError, RequestRefused

HEAVY = ("prefect", "inspect_ai", "boto3", "botocore", "rich", "pydantic", "moto")


class Broken(FleetError):
    what: str

    def message(self) -> str:
        return f"the {self.what} is\n broken"


class Wrong(RequestRefused):
    def message(self) -> str:
        return "that is wrong"


def test_help_imports_nothing_that_only_a_command_needs() -> None:
    script = (
        "import sys; from fleet.cli.main import code_of, fleet; code = code_of(fleet, ['--help']);"
        f"print([name for name in {HEAVY} if name in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
    for name, (_, line) in COMMANDS.items():
        assert name in done.stdout
        assert line in done.stdout


def test_every_command_of_the_table_is_where_it_says() -> None:
    for name in COMMANDS:
        assert isinstance(fleet.get_command(click.Context(fleet), name), click.Command)


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (Broken(what="thing"), 1, "error: the thing is broken\n"),
        (Wrong(), 2, "error: that is wrong\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (click.UsageError("no such thing"), 2, "Error: no such thing"),
    ],
    ids=["failed", "refused", "interrupted", "aborted", "usage"],
)
def test_what_goes_wrong_is_one_line_on_stderr_and_a_code(
    raised: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise raised

    assert code_of(command, []) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "Traceback" not in captured.err


def test_a_bug_keeps_its_traceback() -> None:
    @click.command()
    def command() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        code_of(command, [])


def test_a_command_may_answer_its_code() -> None:
    @click.command()
    def command() -> int:
        return 3

    assert code_of(command, []) == 3


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(fleet, ["flee"]) == 2
    assert "flee" in capsys.readouterr().err
