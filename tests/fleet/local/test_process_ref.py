from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from signal import SIGKILL

import pytest

from fleet.local.process_ref import ProcessRef, wait_gone

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """One that runs what it is to run: before, it has hardly any memory."""
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_process_is_itself(sleeper: subprocess.Popen[bytes]) -> None:
    found = ProcessRef.of(sleeper.pid)
    assert found is not None
    assert found.alive()
    assert (found.memory() or 0) > 100_000


def test_a_pid_that_went_to_another_process_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    """The guarantee behind `down` after a crash: a pid from the state file is signalled only with the recorded start."""
    earlier = ProcessRef(pid=sleeper.pid, started="long ago")
    assert not earlier.alive()
    assert earlier.memory() is None
    earlier.signal(SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.1)


def test_a_zombie_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    found = ProcessRef.of(sleeper.pid)
    assert found is not None
    found.signal(SIGKILL)
    assert wait_gone([found], 5)
    assert sleeper.returncode is None, "nobody has waited for it, so it is a zombie"


def test_waiting_has_an_end() -> None:
    me = ProcessRef.of(os.getpid())
    assert me is not None
    assert not wait_gone([me], 0.0)
