from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from fleet.local.ending import end_cloud, host_folder, mark
from fleet.local.process_ref import ProcessRef
from fleet.local.processes import MARK

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
DAEMON = f"""
import subprocess, sys
daemon = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True, stdout=subprocess.PIPE, text=True)
print(daemon.stdout.readline() + str(daemon.pid))
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def start(folder: Path, part: str, code: str = SLEEP) -> tuple[subprocess.Popen[str], ProcessRef]:
    process = marked(mark(folder, part), code)
    found = ProcessRef.of(process.pid)
    assert found is not None
    return process, found


def marked(entry: dict[str, str], code: str) -> subprocess.Popen[str]:
    """A process that runs its code: amid its exec it has no environment, and can't be found by its mark."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **entry}, text=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate()
    return process.returncode


def test_nothing_is_left_of_what_is_written_down(tmp_path: Path) -> None:
    parts = {name: start(tmp_path, name) for name in ("host", "server")}
    assert end_cloud(tmp_path, {name: ref for name, (_, ref) in parts.items()}) == []
    codes = [ended(process) for process, _ in parts.values()]
    assert codes == [-15, -9], "the host is asked, the rest is killed"


def test_what_was_never_written_down_is_found_by_its_mark(tmp_path: Path) -> None:
    """A supervisor that is killed right after it started a part, and a part's own daemon: neither is in the state file."""
    part, _ = start(tmp_path, "workers")
    parent, _ = start(tmp_path, "workers", DAEMON)
    daemon = ProcessRef.of(int(parent.communicate()[0]))
    assert daemon is not None
    assert end_cloud(tmp_path, {}) == []
    assert ended(part) < 0
    assert not daemon.alive()


def test_an_instances_process_goes_too_when_its_host_was_killed(tmp_path: Path) -> None:
    process = marked({MARK: f"{host_folder(tmp_path)}:i-0123"}, SLEEP)
    assert end_cloud(tmp_path, {}) == []
    assert ended(process) < 0


def test_another_cloud_stays(tmp_path: Path) -> None:
    """Also one whose name begins with this one's."""
    other, ref = start(tmp_path / "ab", "server")
    assert end_cloud(tmp_path / "a", {}) == []
    assert ref.alive()
    other.kill()
    other.communicate()


def test_a_part_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    process, ref = start(tmp_path, "workers", STUBBORN)
    began = time.monotonic()
    assert end_cloud(tmp_path, {"workers": ref}) == []
    assert ended(process) == -9
    assert time.monotonic() - began < 5
