"""A process is known by its id and start, and its end is believed only where it can be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet import processes
from fleet.processes import Process, has_ended, process, space


def test_this_process_is_one_and_lives() -> None:
    me = process(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert not has_ended(me)
    assert has_ended(Process(me.pid, "long ago")), "another process has its id"


def test_a_process_has_ended_as_a_zombie_and_when_it_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = process(child.pid)
    assert found is not None
    assert not has_ended(found)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(found)
    assert process(child.pid) is None
    child.communicate()
    assert has_ended(found)


def test_a_process_that_proc_hides_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted with `hidepid`, it shows no process of another user."""
    me = process(os.getpid())
    assert me is not None
    monkeypatch.setattr(processes, "_seen", lambda pid: (None, False))
    assert not has_ended(me)

    def refuse(pid: int, sign: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not has_ended(me)


def test_all_processes_of_a_container_are_in_one_space() -> None:
    here = space()
    assert here is not None
    code = "from fleet.processes import space; print(space())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(here)


def test_where_the_kernel_does_not_tell_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(path: Path) -> Path:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "readlink", absent)
    assert space() is None
