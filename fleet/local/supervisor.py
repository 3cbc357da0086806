"""The process that starts a local cloud, keeps it, and takes it down: `python -m fleet.local.supervisor`.

It detaches itself, writes what it does into the state file, and imports neither Prefect nor the emulator. It ends on SIGTERM,
when its owner is gone, or when a part doesn't start; no process of the cloud outlives it, unless it is killed itself: then
`down` finds what is left by the state file and by the processes' mark.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.cache import cache_folder
from fleet.local import environment, state
from fleet.local.child import Child, Command
from fleet.local.ending import end_cloud, host_folder
from fleet.local.process_ref import ProcessRef
from fleet.local.state import CloudState, Part
from fleet.local.template import Kind, Templates, templates

LAUNCHER = "fleet.services.launcher"

PATIENCE = 240.0
"""Seconds a part may take to be ready; a first start on a slow disk compiles Prefect and makes its tables."""
LOOK = 0.25
"""Seconds between two looks at parts and owner."""


class PartFailed(Exception):
    """A part didn't start. Never leaves this module: it becomes the state that `up` reads."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"{part} {why}")
        self.part, self.why = part, why


class Ended(Exception):
    """We were told to end, or the owner is gone, while parts were starting."""


@dataclass
class Restarts:
    """How often a part may be started again: `limit` times within `window` seconds, so that a broken one isn't for ever."""

    limit: int = 5
    window: float = 60.0
    _times: deque[float] = field(default_factory=deque)

    def allow(self, now: float) -> bool:
        """Whether it may be started once more at `now` (monotonic seconds); a yes is counted."""
        while self._times and now - self._times[0] > self.window:
            self._times.popleft()
        if len(self._times) >= self.limit:
            return False
        self._times.append(now)
        return True


class Supervisor:
    """One local cloud on its way from nothing to nothing."""

    def __init__(self, name: str, folder: Path, *, controllers: bool, owner: ProcessRef | None) -> None:
        self.folder = folder
        self.cache = cache_folder()
        self.pools = ["ec2", "controllers"] if controllers else ["ec2"]
        self.ending = threading.Event()
        self.listener = _listening_socket()
        me = ProcessRef.of(os.getpid())
        if me is None:
            raise LookupError("this process isn't one")
        self.state = CloudState(
            name=name,
            supervisor=me,
            owner=owner,
            prefect_api=f"http://127.0.0.1:{self.listener.getsockname()[1]}/api",
        )
        self.children: dict[str, Child] = {}
        self.restarts: dict[str, Restarts] = {}
        self.prepared = False

    def say(self, doing: str) -> None:
        """Let the one who waits for the cloud know what is being done."""
        self._tell(doing=doing)

    def run(self) -> int:
        """Start, keep, end. 0: it ended as it should; 1: a part didn't start, and the state says which and why."""
        failed = False
        try:
            self._start()
            self._tell(phase="ready", doing="")
            self._keep()
        except Ended:
            pass
        except PartFailed as failure:
            failed = True
            self._tell(phase="failed", doing="", failed_part=failure.part, why=failure.why)
        if not failed:
            self._tell(phase="stopping", doing="")
        left = self.stop()
        if not failed and not left:
            shutil.rmtree(self.folder, ignore_errors=True)
        return 1 if failed else 0

    def stop(self) -> list[str]:
        """End every process of the cloud but this one; what could not be ended is returned."""
        left = end_cloud(self.folder, {part: child.process for part, child in self.children.items()})
        for child in self.children.values():
            child.ended()  # a zombie otherwise, until we are gone too
        self.listener.close()
        return left

    def _start(self) -> None:
        kept = templates(self.cache)
        found = self._begin_database(kept)
        self._launch("host")
        self._launch("server")
        if found == "cloud":
            self._wait_answer("host")
            self._launch("workers")
            self._wait_answer("server")
        else:
            self.say(f"making a Prefect database, for this and later starts (about {30 if found is None else 15} s)")
            self._wait_answer("server")
            self._wait_answer("host")
            self._prepare(kept, found)
            self._launch("workers")
        self.say("waiting for the pool workers")
        self._wait_answer("workers")

    def _begin_database(self, kept: Templates) -> Kind | None:
        database = environment.database(self.folder)
        database.parent.mkdir(parents=True, exist_ok=True)
        found = kept.copy_to(database)
        self.prepared = found is not None
        return found

    def _prepare(self, kept: Templates, found: Kind | None) -> None:
        database = environment.database(self.folder)
        if found is None:
            kept.keep("tables", database)
        self._launch("deploy")
        self._wait("deploy", lambda child: child.succeeded())
        del self.children["deploy"]
        kept.keep("cloud", database)
        self.prepared = True

    def _keep(self) -> None:
        while not self.ending.wait(LOOK) and self._owner_is_there():
            for part, child in list(self.children.items()):
                why = child.ended()
                if why:
                    self._again(part, why)
                elif not self.state.parts[part].ready and child.answer():
                    self._became_ready(part, child)

    def _again(self, part: str, why: str) -> None:
        """Start a part again that ended, unless it ends too often."""
        before = self.state.parts[part]
        if not self.restarts.setdefault(part, Restarts()).allow(time.monotonic()):
            del self.children[part]
            self._tell_part(part, process=None, ready=False, why=f"{why}, too often to start it again")
            return
        self._launch(part)
        self._tell_part(part, restarts=before.restarts + 1, why=why)

    def _became_ready(self, part: str, child: Child) -> None:
        moved = part == "host" and (child.answer() or {}).get("aws") != self.state.aws_endpoint
        self._note_ready(part, child)
        if moved and "workers" in self.children:
            # The emulator has another address now: the pool workers start anew with it (they are found ended at the next look).
            self.children["workers"].process.signal(signal.SIGKILL)

    def _launch(self, part: str) -> None:
        log = state.log_file(self.folder, part)
        log.parent.mkdir(parents=True, exist_ok=True)
        child = Child(self._command(part), folder=self.folder, log=log)
        self.children[part] = child
        self._tell_part(part, process=child.process, ready=False, log=str(log))

    def _command(self, part: str) -> Command:
        api = self.state.prefect_api
        own = environment.own(os.environ, folder=self.folder, part=part, cache=self.cache)
        if part == "host":
            folder = host_folder(self.folder)
            folder.mkdir(exist_ok=True)
            return Command(part, "fleet.local.host", ["--folder", str(folder)], own)
        if part == "server":
            static = self.cache / "prefect-ui"
            extra = environment.prefect_server(self.folder, api, static=static, prepared=self.prepared)
            fd = self.listener.fileno()
            return Command(part, LAUNCHER, ["fleet.services.server", str(fd)], {**own, **extra}, fds=(fd,))
        if part == "deploy":
            return Command(part, LAUNCHER, ["fleet.local.deploy"], {**own, **environment.prefect(self.folder, api)})
        extra = environment.pool_workers(self.folder, api, self.state.aws_endpoint)
        return Command(part, LAUNCHER, ["fleet.services.pool_workers", *self.pools], {**own, **extra})

    def _wait_answer(self, part: str) -> None:
        self._wait(part, lambda child: child.answer() is not None)
        self._note_ready(part, self.children[part])

    def _note_ready(self, part: str, child: Child) -> None:
        if part == "host":
            self._tell(aws_endpoint=(child.answer() or {})["aws"])
        self._tell_part(part, ready=True)

    def _wait(self, part: str, done: Callable[[Child], bool]) -> None:
        """Until `done`. PartFailed: it, or another part, ended, or it takes too long. Ended: nobody wants it any more."""
        deadline = time.monotonic() + PATIENCE
        while not done(self.children[part]):
            if self.ending.wait(0.03) or not self._owner_is_there():
                raise Ended
            for name, child in self.children.items():
                why = child.ended()
                if why and not (name == part and done(child)):
                    raise PartFailed(name, why)
            if time.monotonic() > deadline:
                raise PartFailed(part, f"wasn't ready after {PATIENCE:.0f} s")

    def _owner_is_there(self) -> bool:
        return self.state.owner is None or self.state.owner.alive()

    def _tell(self, **changes: Any) -> None:
        self.state = self.state.model_copy(update=changes)
        state.write(self.folder, self.state)

    def _tell_part(self, part: str, **changes: Any) -> None:
        before = self.state.parts.get(part) or Part(log=str(state.log_file(self.folder, part)))
        self._tell(parts={**self.state.parts, part: before.model_copy(update=changes)})


def _listening_socket() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    return listener


def main() -> None:
    """Detach, then supervise until told to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--controllers", action="store_true")
    parser.add_argument("--owner-pid", type=int)
    arguments = parser.parse_args()
    owner = ProcessRef.of(arguments.owner_pid) if arguments.owner_pid else None
    if arguments.owner_pid and owner is None:
        raise SystemExit(f"the owner, process {arguments.owner_pid}, is gone already")
    settled = _detach()
    supervisor = Supervisor(arguments.name, arguments.folder, controllers=arguments.controllers, owner=owner)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: supervisor.ending.set())
    supervisor.say("starting the emulator and the Prefect server")
    settled()
    raise SystemExit(supervisor.run())


def _detach() -> Callable[[], None]:
    """Go on in a process that nobody has to wait for. The one that was started ends when the returned function is called,
    with an exit code of 1 if that never happens."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os._exit(0 if os.read(reading, 1) else 1)
    os.close(reading)

    def settled() -> None:
        os.write(writing, b".")
        os.close(writing)

    return settled


if __name__ == "__main__":
    main()
