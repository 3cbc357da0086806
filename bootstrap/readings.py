"""A look at this host for the guard: room on the filesystems that matter, memory, and whether Docker's engine answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import anyio

from bootstrap.clockwork import abandonable
from bootstrap.guard import Filesystem, Reading

READ_SECONDS = 60.0
"""For one look: twice what the engine gets to answer."""
THREADS = 8
"""Looks that may hang at a time: the guard gives the host up before there are so many in a row."""
MEMORY = Path("/proc/meminfo")
KILLS = Path("/proc/vmstat")
"""Has the kernel's count of processes that it killed for memory, `oom_kill`, since boot (Linux 4.13 and later)."""
DOCKER_FOLDERS = (Path("/var/lib/docker"), Path("/var/lib/containerd"))
"""Where engines keep images and containers, the second from Docker 29 on; the engine's own word is asked for besides."""


class _Look:
    """A look on its way."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.reading: Reading | None = None
        """None: it isn't over, or whoever had it made was cancelled."""


class HostReader:
    """Looks at the host. A look never takes longer than `READ_SECONDS`, and who asks while one is on is answered by it.

    Else jobs that fail in a burst, each of which asks, would wait for one another's looks, and that would count as an unfit host.
    """

    def __init__(self, folders: Iterable[Path], engine: Callable[[], str] | None, *, memory: Path = MEMORY) -> None:
        """`engine` says why Docker's engine doesn't answer (empty: it does); None: nobody needs it."""
        self._folders, self._engine, self._memory = tuple(folders), engine, memory
        # Threads that hang are left behind: neither the guard nor the end of the process waits for a disk that is gone.
        self._limiter = anyio.CapacityLimiter(THREADS)
        self._look: _Look | None = None

    async def __call__(self) -> Reading:
        """What a look shows."""
        while (on := self._look) is not None:
            await on.over.wait()
            if on.reading is not None:
                return on.reading
        look = self._look = _Look()
        try:
            look.reading = reading = await self._made()
            return reading
        finally:
            self._look = None
            look.over.set()

    async def _made(self) -> Reading:
        with anyio.move_on_after(READ_SECONDS):
            return await abandonable(self._limiter, self.read)
        return Reading(silent=f"the host couldn't be looked at within {READ_SECONDS:g} s")

    def read(self) -> Reading:
        """One look, blocking."""
        return Reading(
            filesystems=tuple(filesystems(self._folders)),
            memory=memory(self._memory),
            engine=self._engine() if self._engine else "",
        )


def filesystems(folders: Iterable[Path]) -> Iterator[Filesystem]:
    """The filesystems of these folders, each once; a folder that isn't there has none."""
    known: set[int] = set()
    for folder in folders:
        try:
            device, found = folder.stat().st_dev, os.statvfs(folder)
        except OSError:
            continue
        if device not in known:
            known.add(device)
            block = found.f_frsize
            yield Filesystem(str(folder), found.f_bavail * block, found.f_blocks * block, found.f_favail, found.f_files)


def memory(path: Path) -> tuple[int, int] | None:
    """Bytes available and in all, by the kernel; None where it doesn't say."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if rest.split()}
    try:
        return kib["MemAvailable"] * 1024, kib["MemTotal"] * 1024
    except KeyError:
        return None


def oom_kills(path: Path = KILLS) -> int:
    """How many processes the kernel has killed for memory since boot; 0 where it doesn't say."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
