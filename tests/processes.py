"""Processes of this machine, found by a mark in their environment: a test sees its own, never those of one beside it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def processes_with(entry: str) -> dict[int, str]:
    """Command lines, by process id, of every process with an entry in its environment that begins so (`NAME=value`)."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            if any(one.startswith(entry.encode()) for one in (process / "environ").read_bytes().split(b"\0")):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(process.name)] = command.decode(errors="replace")
    return found
