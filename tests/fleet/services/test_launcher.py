"""Processes that end with the one that started them, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fleet.services.launcher import PARENT
from tests.cloud import until

LONG = "import time\ndef main(arguments):\n    print('runs', flush=True)\n    time.sleep(60)\n"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    (tmp_path / "long.py").write_text(LONG)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


def test_a_child_of_a_killed_program_is_told_to_end(environment: Mapping[str, str]) -> None:
    """Else a server would go on alone, and hold the port against the next program's."""
    starts_it = (
        "import os, subprocess, sys\n"
        f"env = {{**os.environ, {PARENT!r}: str(os.getpid())}}\n"
        "child = subprocess.Popen([sys.executable, '-m', 'fleet.services.launcher', 'long'], env=env)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starts_it], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, said = sorted(parent.stdout.readline().strip() for _ in range(2))  # in either order
        child = int(pid)
        assert said == "runs"
        parent.send_signal(signal.SIGKILL)
    until("the child is gone", lambda: not Path(f"/proc/{child}").exists() or _zombie(child), seconds=10)


def test_one_whose_parent_is_gone_already_doesnt_begin(environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleet.services.launcher", "long"],
        env={**environment, PARENT: "1073741823"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "process 1073741823, which started this one, is gone" in done.stderr


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:  # it went meanwhile
        return True
