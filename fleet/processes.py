"""Processes of this machine as the kernel tells them: by id and start, since ids are used again. Where there is no Linux, none."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A living process; equal only while it is the very same one, since process ids are used again."""

    pid: int
    started: str
    """In ticks since the system's boot; only ever compared."""
    parent: int = field(default=0, compare=False)
    group: int = field(default=0, compare=False)
    session: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Space:
    """What process ids and starts count in: those of two boots, or of two containers, have nothing to do with each other."""

    boot: str
    """The kernel's id of this boot."""
    namespace: str
    """Of process ids, as the kernel names it."""


def process(pid: int) -> Process | None:
    """The process of that id, if it lives."""
    found, zombie = _seen(pid)
    return None if zombie else found


def space() -> Space | None:
    """Where this process is; None: the kernel doesn't say."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):  # another namespace's /proc
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return Space(boot, str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        return None


def has_ended(one: Process) -> bool:
    """Whether this process of our own space is seen to be gone: nobody has its id, or another one, or it is a zombie."""
    found, zombie = _seen(one.pid)
    if found is not None:
        return zombie or found != one
    try:
        os.kill(one.pid, 0)  # /proc may hide other users' processes
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _seen(pid: int) -> tuple[Process | None, bool]:
    """The process of that id, and whether it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None, False
    # The name stands in parentheses and may hold any character, so the fields are counted from the last one.
    state, parent, group, session, *rest = text.rpartition(")")[2].split()
    found = Process(pid=pid, started=rest[15], parent=int(parent), group=int(group), session=int(session))
    return found, state in "ZX"
