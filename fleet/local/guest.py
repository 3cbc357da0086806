"""One instance's life on this machine: its folder, its first process, its power switch, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from fleet.local.disks import write_disk_shims
from fleet.local.machines import Machine
from fleet.local.power import FIFO, PowerRequest, read_power, write_shims
from fleet.local.processes import MARK, Finder, end, write_record
from fleet.local.roots import VARIABLE, Roots, write_system_shims
from fleet.local.scratch import CONSOLE, HOME, clear, folder_of, make_temporary
from fleet.processes import Process, process


class Guest:
    """The local processes of one instance. Used from the hypervisor's event loop only.

    What it leaves behind when it has ended is its console's output and nothing else.
    """

    def __init__(self, machine: Machine, cloud: Path, environment: Mapping[str, str]) -> None:
        """`cloud`: the folder of the local cloud. `environment`: what its processes get, beside what is its own."""
        self._machine = machine
        self._folder = folder_of(cloud, machine.id)
        self._roots = Roots(cloud)
        self._root: Path | None = None
        self._environment = environment
        self._mark = f"{cloud}:{machine.id}"
        self._first: Process | None = None
        self._power: int | None = None
        self._temporary: Path | None = None
        self._watch: asyncio.Task[None] | None = None

    async def boot(self, on_power: Callable[[PowerRequest], None]) -> None:
        """Run the user data as cloud-init does: a script that starts with `#!`, once. `on_power`: it switches itself off."""
        await asyncio.to_thread(self._prepare)
        self._listen(on_power)
        if not self._machine.user_data.startswith(b"#!"):
            if self._machine.user_data:
                self._say("user data is not a script (it does not start with #!): not run")
            return
        with (self._folder / CONSOLE).open("ab") as console:
            try:
                started = await asyncio.create_subprocess_exec(
                    str(self._folder / "user-data"),
                    cwd=self._folder / HOME,
                    env=self._own_environment(),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=console,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:  # no such interpreter: the machine runs all the same, as on EC2
                self._say(f"user data could not be started: {error}")
                return
        self._first = process(started.pid)
        if self._first is not None:
            await asyncio.to_thread(write_record, self._folder, self._first)
        self._watch = asyncio.create_task(self._report_exit(started))

    async def end(self, grace: float) -> set[Process]:
        """TERM, and KILL after `grace` seconds, for everything that runs on it. Returns what could not be ended."""
        left = await self.kill(grace)
        self._unlisten()
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.to_thread(clear, self._folder)
        return left

    async def kill(self, grace: float = 0.0) -> set[Process]:
        """End its processes (without a grace, by KILL alone) and leave the machine on. Returns what could not be ended."""
        finder = Finder(self._mark, [self._first] if self._first else [])
        return await asyncio.to_thread(end, finder, grace=grace)

    def _prepare(self) -> None:
        (self._folder / HOME).mkdir(parents=True, exist_ok=True)
        script = self._folder / "user-data"
        script.write_bytes(self._machine.user_data)
        script.chmod(0o700)
        write_shims(self._folder / "bin", fifo=self._folder / FIFO, python=sys.executable)
        write_disk_shims(self._folder / "bin", self._folder)
        self._root = self._roots.boot(self._machine.id, self._machine.image)
        if self._root is not None:
            write_system_shims(self._folder / "bin", self._root)
        self._temporary = make_temporary(self._folder)
        plugins = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
        if plugins.is_dir():  # `docker compose` is found through HOME, which is the instance's own; logins stay behind
            (self._folder / HOME / ".docker").mkdir(exist_ok=True)
            with contextlib.suppress(FileExistsError):
                (self._folder / HOME / ".docker" / "cli-plugins").symlink_to(plugins)

    def _own_environment(self) -> dict[str, str]:
        return {
            **self._environment,
            **({VARIABLE: str(self._root)} if self._root else {}),
            "PATH": f"{self._folder / 'bin'}{os.pathsep}{self._environment['PATH']}",
            "HOME": str(self._folder / HOME),
            "TMPDIR": str(self._temporary),
            MARK: self._mark,
        }

    def _listen(self, on_power: Callable[[PowerRequest], None]) -> None:
        power = os.open(
            self._folder / FIFO, os.O_RDWR | os.O_NONBLOCK
        )  # for writing too: else it ends with each writer

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                for line in os.read(power, 65_536).decode(errors="replace").splitlines():
                    command, *arguments = line.split() or [""]
                    self._say(line)
                    request = read_power(command, arguments, datetime.now())  # hh:mm is a wall clock's
                    if request is not None:
                        on_power(request)

        self._power = power
        asyncio.get_running_loop().add_reader(power, read)

    def _unlisten(self) -> None:
        if self._power is not None:
            asyncio.get_running_loop().remove_reader(self._power)
            os.close(self._power)
            self._power = None

    async def _report_exit(self, started: asyncio.subprocess.Process) -> None:
        status = await started.wait()
        how = f"with status {status}" if status >= 0 else f"by signal {-status}"
        self._say(f"user data ended {how}")

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError), (self._folder / CONSOLE).open("a") as console:
            console.write(f"[{datetime.now().astimezone():%H:%M:%S}] local instance {self._machine.id}: {line}\n")
