"""A process as it is written down: found again after a crash, and never taken for the next one with its pid."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from signal import Signals
from typing import Self

from fleet import processes
from fleet.processes import Process
from fleet.wire import Wire


class ProcessRef(Wire):
    """One process of this machine, by its pid and start."""

    pid: int
    started: str
    """In ticks since the system's boot; only ever compared."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has `pid` now; None: there is none."""
        found = processes.process(pid)
        return cls(pid=pid, started=found.started) if found else None

    @property
    def process(self) -> Process:
        """As `processes` knows it."""
        return Process(self.pid, self.started)

    def alive(self) -> bool:
        """It runs still. A zombie doesn't: it only waits for its parent to notice."""
        return processes.process(self.pid) == self.process

    def signal(self, sign: Signals) -> None:
        """Send it a signal, if it is there."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, sign)

    def memory(self) -> int | None:
        """Its resident memory in bytes; None: it is gone."""
        if not self.alive():
            return None
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        return None


def wait_gone(these: Iterable[ProcessRef], seconds: float) -> bool:
    """Wait until all are gone, `seconds` at most; False: some are there still."""
    deadline = time.monotonic() + seconds
    for one in these:
        while one.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True
