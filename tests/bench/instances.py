"""What instances of a local cloud come to while they live, seen from outside: their folders lie on this machine.

Nothing of the product tells of itself for this: looked at are the record of an instance's first process, its console, and the
folder that its worker makes for its first job.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleet.local import state
from fleet.local.ending import host_folder
from fleet.local.processes import RECORD
from fleet.local.scratch import CONSOLE, TEMPORARY

LOOK_S = 0.02
"""Seconds between two looks: what is seen is so much late, at most."""


@dataclass(slots=True)
class Sight:
    """What was seen of one instance; times in seconds since the epoch."""

    started: float
    """Its first process."""
    taken: float | None = None
    """Its first job; None: it has had none."""
    said: list[tuple[float, str]] = field(default_factory=list)
    """The lines of its console, and when each came."""
    _read: int = 0

    @property
    def ready(self) -> float:
        """Seconds from its first process to its first job. ValueError: it has had none."""
        if self.taken is None:
            raise ValueError("an instance took no job")
        return self.taken - self.started

    def heard(self, text: str) -> float:
        """When it said a line with `text` first. LookupError: it never did."""
        for when, line in self.said:
            if text in line:
                return when
        raise LookupError(f"no instance said {text!r}")

    def look(self, folder: Path, now: float) -> None:
        """Take in what has come since the last look."""
        with (folder / CONSOLE).open("rb") as console:
            console.seek(self._read)
            whole, end, _ = console.read().rpartition(b"\n")
        self._read += len(whole) + len(end)
        self.said += [(now, line) for line in whole.decode(errors="replace").splitlines()]
        if self.taken is None:
            temporary = Path((folder / TEMPORARY).read_text())
            if any(temporary.glob("fleet-worker-*/jobs")):
                self.taken = now


@contextmanager
def seen(cloud: str) -> Iterator[dict[str, Sight]]:
    """What is seen of the instances of the local cloud of this name, by their ids, while the block lasts. It needn't be up yet."""
    sights: dict[str, Sight] = {}
    over = threading.Event()
    looking = threading.Thread(
        target=_look, args=(host_folder(state.cloud_folder(cloud)) / "instances", sights, over), daemon=True
    )
    looking.start()
    try:
        yield sights
    finally:
        over.set()
        looking.join()


def _look(instances: Path, sights: dict[str, Sight], over: threading.Event) -> None:
    while not over.wait(LOOK_S):
        for folder in instances.glob("i-*"):
            with contextlib.suppress(OSError):  # it is about to come, or has gone
                if folder.name not in sights:
                    sights[folder.name] = Sight((folder / RECORD).stat().st_mtime)
                sights[folder.name].look(folder, time.time())
