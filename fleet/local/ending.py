"""The end of a local cloud: no process of it is left, whoever started it and whatever crashed before.

Called by the supervisor for its own end and by `down` after it, so every step looks at what is there and trusts no record alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM

from fleet.local import processes
from fleet.local.process_ref import ProcessRef, wait_gone
from fleet.local.processes import Finder

HOST = "host"
"""The part whose end needs time: emulator and hypervisor."""

HOST_GRACE = 10.0
"""Seconds the host gets to end its instances, each in its own order."""


def mark(folder: Path, part: str) -> dict[str, str]:
    """The variable by which a part, and all that it starts, is found: the one that instances carry, with a name of the part."""
    return {processes.MARK: f"{folder}:{part}"}


def host_folder(folder: Path) -> Path:
    """The folder of the host process, in which each instance has its home."""
    return folder / HOST


def end_cloud(folder: Path, parts: Mapping[str, ProcessRef]) -> list[str]:
    """End every process of the cloud in `folder` except the caller. What could not be ended is returned, for a person to read.

    The host is asked, and waited for, since only it can end instances in order. The rest has nothing worth saving, as its
    database goes too; the pool workers are the first to go, so that nothing new is launched.
    """
    for part in sorted(parts.keys() - {HOST}, reverse=True):
        parts[part].signal(SIGKILL)
    if HOST in parts:
        parts[HOST].signal(SIGTERM)
        wait_gone([parts[HOST]], HOST_GRACE)
    left = processes.end(Finder(f"{folder}:", [part.process for part in parts.values()]), grace=0.0)
    left |= processes.sweep(host_folder(folder))
    return [f"process {pid}" for pid in sorted(one.pid for one in left)]
