"""Finding every process of a local instance, and ending them: also those that left its process group, also after a crash.

A process belongs to an instance when its environment carries the instance's mark, when it is in a session or group that
such a process leads, or when its parent belongs. So a daemon (own session, parent gone) is found by its environment, and
one that cleared its environment by its parent or session. A process that did all three escapes; only a container of its
own could hold it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleet.local.scratch import clear_all
from fleet.processes import Process, process

MARK = "FLEET_LOCAL_INSTANCE"
"""Environment variable of every process of an instance: `<folder of the cloud>:<instance id>`."""
RECORD = "process.json"
"""File in an instance's folder: the first process of it, for those that come after a crash."""
KILL_SECONDS = 5.0
"""How long a killed process may take to vanish before it is reported as left."""


def table() -> dict[int, Process]:
    """All processes that run, zombies left out: they hold nothing any more."""
    # Not Path.iterdir: this runs some fifty times a second while an instance ends.
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return {one.pid: one for one in found if one is not None}


def family(roots: Iterable[Process], marked: Iterable[int], running: Mapping[int, Process]) -> set[Process]:
    """The roots, the marked, and all that descend from them or sit in a session or group led by one of them.

    A root may be gone: its session keeps its number, and no process gets that number while the session lasts.
    """
    members = {pid for pid in marked if pid in running}
    leaders = set(members)
    for root in roots:
        if running.get(root.pid, root) == root:  # another process has that id by now: nothing of it is ours
            leaders.add(root.pid)
            if root.pid in running:
                members.add(root.pid)
    while True:
        more = {
            one.pid
            for one in running.values()
            if one.pid not in members and (one.parent in members or one.session in leaders or one.group in leaders)
        }
        if not more:
            return {running[pid] for pid in members}
        members |= more
        leaders |= more


class Finder:
    """Looks for the processes of one instance, or of all instances of a cloud. Remembers whose environments it has read."""

    def __init__(self, mark: str, roots: Iterable[Process] = ()) -> None:
        """`mark`: a value of MARK, or the start of one."""
        self._mark = f"{MARK}={mark}".encode()
        self._roots = frozenset(roots)
        self._read: dict[Process, bool] = {}

    def find(self) -> set[Process]:
        """Those that run now; never this process."""
        running = table()
        running.pop(os.getpid(), None)
        self._read = {one: self._read[one] for one in running.values() if one in self._read}
        marked = [one.pid for one in running.values() if self._is_marked(one)]
        return family(self._roots, marked, running)

    def _is_marked(self, one: Process) -> bool:
        if one in self._read:
            return self._read[one]
        try:
            entries = Path(f"/proc/{one.pid}/environ").read_bytes()
        except OSError:  # another user's, or gone
            entries = b"?"
        found = any(entry.startswith(self._mark) for entry in entries.split(b"\0"))
        if entries:  # empty: amid its exec, or a kernel thread; look again
            self._read[one] = found
        return found


def end(finder: Finder, *, grace: float) -> set[Process]:
    """TERM once to each, KILL those that live after `grace` seconds; without a grace, KILL at once.

    Returns what is left all the same, to be reported: a process that the kernel doesn't let go.
    """
    gently = [(signal.SIGTERM, grace)] if grace > 0 else []
    for sign, seconds in (*gently, (signal.SIGKILL, KILL_SECONDS)):
        told: set[Process] = set()
        begun = time.monotonic()
        while living := finder.find():
            # Parents first: a script whose command is ended before it would go on to its next one.
            for one in sorted(living - told, key=lambda one: one.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one.pid, sign)
            told |= living
            passed = time.monotonic() - begun
            if passed >= seconds:
                break
            time.sleep(min(0.02 if passed < 0.5 else 0.1, seconds - passed))
        else:
            return set()
    return finder.find()


def write_record(folder: Path, one: Process) -> None:
    """Note an instance's first process in its folder."""
    (folder / RECORD).write_text(json.dumps({"pid": one.pid, "started": one.started}))


def read_records(cloud: Path) -> list[Process]:
    """The first processes of all instances of a cloud's folder. A half-written record is none."""
    found = []
    for record in (cloud / "instances").glob(f"*/{RECORD}"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            raw = json.loads(record.read_text())
            found.append(Process(pid=int(raw["pid"]), started=str(raw["started"])))
    return found


def sweep(cloud: Path, *, grace: float = 2.0) -> set[Process]:
    """End every process of every instance of the cloud whose folder this is, whoever started it, and remove their files.

    Returns what could not be ended. The consoles' outputs stay.
    """
    cloud = cloud.resolve()
    left = end(Finder(f"{cloud}:", read_records(cloud)), grace=grace)
    clear_all(cloud)
    return left
