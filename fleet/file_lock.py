"""Locks of files among the processes of one machine, each waited for with a bound. A holder that dies lets go of its own.

The kernel's own wait has no bound, and one that hangs would hold up everybody after it without a word.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.errors import FleetError

FIRST_S = 0.001
LONGEST_S = 0.5
"""Seconds between two tries: doubled from the first to the longest."""


class FileLocked(FleetError):
    """Another process of this machine has held a lock for longer than its work can take."""

    path: str
    seconds: float
    holders: list[int]
    """Process ids, where the kernel tells them."""

    def message(self) -> str:
        """One line: which lock, who holds it, what to do."""
        who = ", ".join(f"process {pid}" for pid in self.holders) or "another process"
        return (
            f"{self.path} has been locked by {who} for more than {self.seconds:g} s: wait until its work is done, or end it "
            "if it hangs, then try again"
        )


def lock(
    descriptor: int,
    path: Path,
    *,
    seconds: float,
    shared: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Lock an open file, alone or with others that share it. FileLocked: it wasn't to be had within `seconds`."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    until = clock() + seconds
    wait = FIRST_S
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock() >= until:
                raise FileLocked(path=str(path), seconds=seconds, holders=holders(path)) from None
        else:
            return
        sleep(wait)
        wait = min(2 * wait, LONGEST_S)


@contextmanager
def locked(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock of the file at `path`, which is made if it isn't there. FileLocked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        lock(descriptor, path, seconds=seconds)
        yield
    finally:
        os.close(descriptor)


def holders(path: Path) -> list[int]:
    """Processes that hold a lock of this file, as Linux tells it; none where it doesn't."""
    try:
        facts = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    place = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    entries = [line.split() for line in lines]  # one that waits has an arrow in the second column
    return sorted({int(entry[4]) for entry in entries if len(entry) > 5 and entry[1] == "FLOCK" and entry[5] == place})
