from __future__ import annotations

import sys
import time

import pytest

from bootstrap.commands import NOT_THERE, TOO_LATE, image_build, run_command
from fleet.cli.image import build


def test_a_command_answers_with_what_it_said_and_how_it_ended() -> None:
    said = run_command(
        ["sh", "-c", "read line; echo got $line; echo first >&2; echo the reason >&2; exit 3"], given="it\n"
    )
    assert (said.code, said.out, said.why) == (3, "got it\n", "the reason")


def test_a_program_that_is_not_there_is_an_answer() -> None:
    said = run_command(["no-such-program-anywhere"])
    assert said.code == NOT_THERE
    assert said.why == "the command no-such-program-anywhere is not installed"


def test_a_program_that_the_machine_cannot_start_is_an_answer_too() -> None:
    said = run_command(["true", "x" * 2**20])
    assert said.code == 126
    assert said.why == "true can't be run: Argument list too long"


def test_one_that_does_not_end_is_told_so_in_time() -> None:
    began = time.monotonic()
    said = run_command([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)
    assert said.code == TOO_LATE
    assert "within 0.2 seconds" in said.why
    assert time.monotonic() - began < 20


def test_a_command_that_asks_gets_an_end_and_not_our_terminal() -> None:
    assert run_command(["cat"]).out == ""


def test_silence_is_told_by_its_exit_code() -> None:
    assert run_command(["false"]).why == "exit code 1"


@pytest.mark.parametrize(
    ("environ", "machine", "command"),
    [
        ({"FLEET_REGION": "eu-west-1"}, "x86_64", "fleet image build --gpu --region eu-west-1"),
        ({"FLEET_REGION": "eu-west-1"}, "aarch64", "fleet image build --architecture arm64 --gpu --region eu-west-1"),
        ({}, "x86_64", "fleet image build --gpu"),
    ],
)
def test_the_command_that_builds_an_image_is_one_that_the_command_takes(
    environ: dict[str, str], machine: str, command: str
) -> None:
    """It builds for the instance's own region, which need not be the account's, and its processor."""
    made = image_build("--gpu", environ=environ, machine=machine)
    assert made == command
    build.make_context("build", made.split()[3:])
