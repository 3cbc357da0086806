from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import anyio
import pytest

from bootstrap.worker_setup import (
    OUTPUT,
    TOLD,
    VARIABLES,
    Taken,
    WorkerSetupEnvBroken,
    WorkerSetupFailed,
    command_of,
    make_ready,
    room_for_variables,
    run_setup,
    setup_environment,
    take_over,
    taken,
)

JOBS = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-1", "HOME": "/root"}


def run(folder: Path, text: str, **more: object) -> list[str]:
    """What a script says, run as the step runs it."""
    script = folder / "setup"
    script.write_text(text)
    said: list[str] = []
    env = setup_environment(JOBS, folder / "venv" / "bin" / "python", folder / "left.env")

    async def main() -> None:
        await run_setup(make_ready(script), env, folder, said.append, **more)  # type: ignore[arg-type]

    anyio.run(main)
    return said


@pytest.mark.parametrize(
    ("first", "own"),
    [
        (b"echo hi", False),
        (b"#!/bin/bash", False),
        (b"#!/usr/bin/env bash", False),
        (b"#!/bin/sh -u", False),
        (b"#!/usr/bin/python3", True),
        (b"#!/usr/bin/env python3", True),
        (b"#!/usr/bin/env -S bash -x", True),
        (b"#!", True),
    ],
)
def test_a_script_is_bashs_unless_it_names_another_program(first: bytes, own: bool) -> None:
    command = command_of(first + b"\ntrue\n", Path("/s"))
    assert command == (["/s"] if own else ["bash", "-e", "/s"])


def test_a_script_sees_the_job_environment_and_the_secrets_and_is_heard(tmp_path: Path) -> None:
    said = run(tmp_path, "echo $VIRTUAL_ENV; echo key $OPENAI_API_KEY; echo to the other >&2; printf 'no end'")
    assert said == [f"{tmp_path}/venv", "key sk-1", "to the other", "no end"]


def test_secrets_are_taken_out_of_what_it_says(tmp_path: Path) -> None:
    def hide(text: str) -> str:
        return text.replace("sk-1", "<KEY>")

    assert run(tmp_path, "echo $OPENAI_API_KEY", hide=hide) == ["<KEY>"]
    with pytest.raises(WorkerSetupFailed, match="<KEY>") as failed:
        run(tmp_path, "echo $OPENAI_API_KEY; exit 3", hide=hide)
    assert "sk-1" not in str(failed.value)


def test_a_failure_is_fatal_with_its_code_and_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(WorkerSetupFailed) as failed:
        run(tmp_path, "for i in 1 2 3 4 5 6 7; do echo line $i; done; exit 3")
    assert str(failed.value).startswith("worker_setup exited with code 3 (line 3 | line 4 | line 5 | line 6 | line 7).")


def test_bash_ends_at_the_first_failing_command(tmp_path: Path) -> None:
    with pytest.raises(WorkerSetupFailed, match="code 1"):
        run(tmp_path, "#!/bin/bash\nfalse\necho never\n")


def test_one_that_is_killed_and_one_whose_program_is_missing_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(WorkerSetupFailed, match="was ended by SIGTERM"):
        run(tmp_path, "kill -TERM $$")
    with pytest.raises(WorkerSetupFailed, match=r"can't be started \(No such file"):
        run(tmp_path, "#!/no/such/program\n")


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    with pytest.raises(WorkerSetupFailed, match=r"didn't end within 2 seconds \(begun"):
        run(tmp_path, "echo begun; sleep 300 & echo $! > pid; wait", seconds=2)
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(child)


def test_what_a_good_script_leaves_running_stays_and_holds_nobody_up(tmp_path: Path) -> None:
    """A service that jobs need: it may hold the script's output open."""
    began = time.monotonic()
    talker = "while echo I live; do echo >> beats; sleep 0.05; done"
    said = run(tmp_path, f"bash -c '{talker}' & echo $! > pid; echo started")
    assert "started" in said
    assert time.monotonic() - began < 30
    child = int((tmp_path / "pid").read_text())
    beats = tmp_path / "beats"
    beats.touch()
    after = beats.stat().st_size + 2
    while _alive(child) and beats.stat().st_size < after and time.monotonic() - began < 30:
        time.sleep(0.01)
    assert _alive(child), "nobody listens to it any more, and it may go on talking"
    assert beats.stat().st_size >= after
    os.kill(child, 9)


def test_a_line_of_any_length_is_told(tmp_path: Path) -> None:
    said = run(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo done")
    assert said[-1] == "done"
    assert sum(line.count("x") for line in said) == 3_000_000


def test_what_it_says_and_what_it_leaves_is_roots_alone(tmp_path: Path) -> None:
    """Jobs of another user run beside it, and a script may print or export a key."""
    left = room_for_variables(tmp_path)
    assert left == tmp_path / VARIABLES
    before = os.umask(0)
    try:
        run(tmp_path, f"echo export KEY=sk-1 >> {left}; echo sk-1")
    finally:
        os.umask(before)
    assert {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in (OUTPUT, VARIABLES)} == {
        OUTPUT: 0o600,
        VARIABLES: 0o600,
    }


def test_a_script_that_leaves_nothing_changes_nothing(tmp_path: Path) -> None:
    left = room_for_variables(tmp_path)
    assert take_over(left, JOBS) == Taken({})
    assert not left.exists()


def test_what_the_file_exports_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "left.env"
    file.write_text(
        'export SANDBOX_URL="http://10.0.0.1:80/a=b"\nexport TWO="$HOME/two\nlines"\nPLAIN=not exported 2>/dev/null || true\n'
        "echo noise\nexport PATH=/opt/sandbox/bin:$PATH\nunset OPENAI_API_KEY\n"
    )
    found = take_over(file, JOBS)
    assert found.variables == {
        "SANDBOX_URL": "http://10.0.0.1:80/a=b",
        "TWO": "/root/two\nlines",
        "PATH": f"/opt/sandbox/bin:{JOBS['PATH']}",
    }
    assert found.removed == {"OPENAI_API_KEY"}
    assert found.over(JOBS) == {**found.variables, "HOME": "/root"}
    assert not file.exists(), "it may hold secrets"


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    assert take_over(tmp_path / "none", JOBS) == Taken({})


@pytest.mark.parametrize("text", ["export A='\n", "exit 4\n", "false\nexport A=1\n"])
def test_a_file_that_bash_cannot_read_is_fatal(tmp_path: Path, text: str) -> None:
    file = tmp_path / "left.env"
    file.write_text(text)
    with pytest.raises(WorkerSetupEnvBroken, match="export NAME=value"):
        take_over(file, JOBS)


def test_variables_of_the_shell_itself_are_nobodys() -> None:
    assert taken({"A": "1", TOLD: "/x"}, "A=1\0SHLVL=1\0PWD=/\0_=/bin/env\0") == Taken({})


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it ended, also while this was being read
        return False
