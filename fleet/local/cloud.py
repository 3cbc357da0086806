"""The local cloud as one thing: bring it up, find it, look at it, take it down.

`up`, `down` and `status` may be called by several processes at a time: a lock per name lets one act, the others wait for it.
The product never asks whether its cloud is local: all it gets is `LocalCloud.environment()`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleet.cache import cache_folder
from fleet.errors import FleetError
from fleet.file_lock import lock
from fleet.local import environment, state
from fleet.local.ending import end_cloud
from fleet.local.process_ref import wait_gone
from fleet.local.state import CloudState, Part

FIRST_START = 600.0
"""Seconds `up` waits in all; the supervisor gives up on each part long before."""
DETACHED = 60.0
"""Seconds the supervisor may take to detach itself."""
LOCKED = FIRST_START + 120.0
"""Seconds another process may hold a cloud's name: it brings the cloud up, or takes it down."""
SUPERVISOR_END = 15.0
"""Seconds the supervisor gets to take its parts down by itself."""
HEALTH = 3.0
"""Seconds a part may take to answer when its health is asked for."""

Say = Callable[[str], None]


class CloudNotStarted(FleetError):
    """A part of the local cloud didn't start; what had started is gone again, its logs are kept."""

    cloud: str
    part: str
    why: str
    log: str

    def message(self) -> str:
        """One line: which part, what happened, and where to read on."""
        return f"the local cloud {self.cloud} did not start: {self.part} {self.why}; see {self.log}"


@dataclass(frozen=True, slots=True)
class LocalCloud:
    """A local cloud that is up."""

    name: str
    folder: Path
    aws_endpoint: str
    prefect_api: str

    @property
    def prefect_ui(self) -> str:
        """The address for a browser."""
        return self.prefect_api.removesuffix("/api")

    def environment(self) -> dict[str, str]:
        """The variables with which Prefect and boto3 use this cloud, and nothing of the person's own configuration.

        Whoever applies them drops `foreign()` variables first.
        """
        return {
            **environment.around_proxies(os.environ),
            **environment.aws(self.folder, self.aws_endpoint),
            **environment.prefect(self.folder, self.prefect_api),
        }

    def apply_to_prefect(self) -> None:
        """Make this process use the cloud's Prefect server once Prefect is imported; all else stays the person's own.

        As good as `apply` for that, and possible before the cloud is up.
        """
        for name in self.foreign():
            if name.startswith(environment.PREFECT):
                del os.environ[name]
        os.environ.update(environment.prefect(self.folder, self.prefect_api))

    def foreign(self) -> list[str]:
        """The variables of this process that would lead it elsewhere."""
        return [name for name in os.environ if name.startswith(environment.FOREIGN) and name not in self.environment()]

    def apply(self) -> None:
        """Make this process use the cloud. Before Prefect is imported: it reads its settings then."""
        for name in self.foreign():
            del os.environ[name]
        os.environ.update(self.environment())


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One process of a local cloud, as it is now."""

    part: str
    pid: int | None
    health: str
    """`ok`, or what is wrong with it."""
    address: str
    memory: int | None
    """Resident bytes."""
    restarts: int
    log: str


@dataclass(frozen=True, slots=True)
class CloudStatus:
    """A local cloud, as it is now."""

    name: str
    phase: str
    """The supervisor's word for it, or `crashed` when the supervisor is gone."""
    folder: Path
    aws_endpoint: str
    prefect_api: str
    parts: tuple[PartStatus, ...]

    @property
    def healthy(self) -> bool:
        """It is ready, and every part is well."""
        return self.phase == "ready" and all(part.health == "ok" for part in self.parts)


def up(
    name: str = "default",
    *,
    controllers: bool = True,
    owner_pid: int | None = None,
    say: Say = lambda _: None,
    wanted: Callable[[], bool] = lambda: True,
    coming: Callable[[LocalCloud], None] = lambda _: None,
    answering: Callable[[LocalCloud], None] = lambda _: None,
) -> LocalCloud:
    """The local cloud `name`, brought up if it isn't. With `owner_pid` it ends by itself when that process does.

    `controllers`: also run the flow runs of the pool `controllers` (the UI's, the schedule's), not only instances.
    `wanted` is asked while the start goes on: it may be called off from another thread. `coming` is told of the cloud as soon as
    the address of its Prefect server is known; nothing answers there yet, and that of its AWS is still to come. `answering` is
    told of it once, when both answer; who launches instances may still be starting, and the cloud may yet fail.
    CloudNotStarted: a part failed, or the start was called off; nothing of it runs.
    """
    folder = state.cloud_folder(name)
    with _locked(name):
        found = find(name)
        if found:
            say(f"the local cloud {name} is already up")
            coming(found)
            answering(found)
            return found
        if folder.exists():
            say(f"removing what an earlier local cloud {name} left")
            _take_down(name)
        folder.mkdir(parents=True)
        why = _spawn_supervisor(name, folder, controllers=controllers, owner_pid=owner_pid)
        if why:
            raise _not_started(name, "the supervisor", why, state.log_file(folder, "supervisor"), say)
        if known := state.read(folder):  # there before the supervisor detached itself
            coming(LocalCloud(name=name, folder=folder, aws_endpoint="", prefect_api=known.prefect_api))
        try:
            return _wait_ready(name, folder, say, wanted, answering)
        except KeyboardInterrupt:
            _take_down(name)  # who stops waiting for a cloud doesn't want one
            raise


def find(name: str = "default") -> LocalCloud | None:
    """The local cloud `name`; None: it isn't up."""
    folder = state.cloud_folder(name)
    known = _readable(folder)
    if known is None or known.phase != "ready" or not known.supervisor.alive():
        return None
    return _of(folder, known)


def down(name: str = "default") -> list[str]:
    """Take the local cloud `name` down, however much of it there is. Returned: what could not be stopped."""
    with _locked(name) as lock:
        left = _take_down(name)
        if not left:
            lock.unlink()
        return left


def names() -> list[str]:
    """The local clouds that are up, or have left something."""
    folder = state.clouds_folder()
    return sorted(child.name for child in folder.iterdir() if child.is_dir()) if folder.is_dir() else []


def status(name: str = "default") -> CloudStatus | None:
    """How the local cloud `name` is; None: there is none."""
    folder = state.cloud_folder(name)
    known = state.read(folder)
    if known is None:
        return None
    supervised = known.supervisor.alive()
    rows = [_part_status(part, row, known) for part, row in known.parts.items() if part != "deploy"]
    supervisor = PartStatus(
        part="supervisor",
        pid=known.supervisor.pid if supervised else None,
        health="ok" if supervised else "gone",
        address="",
        memory=known.supervisor.memory(),
        restarts=0,
        log=str(state.log_file(folder, "supervisor")),
    )
    return CloudStatus(
        name=name,
        phase=known.phase if supervised or known.phase == "failed" else "crashed",
        folder=folder,
        aws_endpoint=known.aws_endpoint,
        prefect_api=known.prefect_api,
        parts=(supervisor, *rows),
    )


def _part_status(part: str, row: Part, known: CloudState) -> PartStatus:
    addresses = {"host": known.aws_endpoint, "server": known.prefect_api}
    return PartStatus(
        part=part,
        pid=row.process.pid if row.process and row.process.alive() else None,
        health=_health(part, row, known),
        address=addresses.get(part, ""),
        memory=row.process.memory() if row.process else None,
        restarts=row.restarts,
        log=row.log,
    )


def _health(part: str, row: Part, known: CloudState) -> str:
    if row.process is None or not row.process.alive():
        return row.why or "gone"
    if not row.ready:
        return "starting"
    if part == "server" and not _answers(f"{known.prefect_api}/health"):
        return f"no answer within {HEALTH:.0f} s"
    if part == "host" and not _answers(known.aws_endpoint):
        return f"no answer within {HEALTH:.0f} s"
    return "ok"


def _answers(url: str) -> bool:
    """Whether a server answers at all: an error is an answer too."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=HEALTH):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _spawn_supervisor(name: str, folder: Path, *, controllers: bool, owner_pid: int | None) -> str:
    """Start it; how that failed, empty if it didn't."""
    log = state.log_file(folder, "supervisor")
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["--name", name, "--folder", str(folder)]
    arguments += ["--controllers"] if controllers else []
    arguments += ["--owner-pid", str(owner_pid)] if owner_pid else []
    with log.open("ab") as output:
        try:
            code = subprocess.run(  # it returns at once: the supervisor detaches itself
                [sys.executable, "-m", "fleet.local.supervisor", *arguments],
                env=environment.own(os.environ, folder=folder, part="supervisor", cache=cache_folder()),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                check=False,
                timeout=DETACHED,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"didn't detach itself within {DETACHED:g} s"
    return f"ended with exit code {code}" if code else ""


def _wait_ready(
    name: str, folder: Path, say: Say, wanted: Callable[[], bool], answering: Callable[[LocalCloud], None]
) -> LocalCloud:
    told = False
    log = state.log_file(folder, "supervisor")
    deadline = time.monotonic() + FIRST_START
    doing = ""
    while time.monotonic() < deadline:
        known = state.read(folder)
        if known and known.phase == "failed":
            raise _not_started(name, known.failed_part, known.why, state.log_file(folder, known.failed_part), say)
        found = find(name)
        if not told and (there := found or _answering(folder, known)):
            answering(there)
            told = True
        if found:
            return found
        if known is None or not known.supervisor.alive():
            break
        if not wanted():
            _take_down(name)
            raise CloudNotStarted(cloud=name, part="the start", why="was called off", log=str(log))
        if known.doing and known.doing != doing:
            doing = known.doing
            say(doing)
        time.sleep(0.05)
    left = _take_down(name, keep=True)
    why = "ended before the cloud was ready" if not left else f"ended early and left {', '.join(left)}"
    raise _not_started(name, "the supervisor", why, log, say)


def _answering(folder: Path, known: CloudState | None) -> LocalCloud | None:
    """The cloud, when only its pool workers are still to come: they are started last."""
    parts = known.parts if known else {}
    if known is None or "workers" not in parts or not all(parts[part].ready for part in ("host", "server")):
        return None
    return _of(folder, known)


def _of(folder: Path, known: CloudState) -> LocalCloud:
    return LocalCloud(name=known.name, folder=folder, aws_endpoint=known.aws_endpoint, prefect_api=known.prefect_api)


def _not_started(name: str, part: str, why: str, log: Path, say: Say) -> CloudNotStarted:
    for line in state.tail(log):
        say(f"  {part}: {line}")
    return CloudNotStarted(cloud=name, part=part, why=why, log=str(log))


def _take_down(name: str, *, keep: bool = False) -> list[str]:
    """End all of it; then remove its folder, unless something is left or its logs are to be kept."""
    folder = state.cloud_folder(name)
    known = _readable(folder)
    if known:
        known.supervisor.signal(signal.SIGTERM)
        if not wait_gone([known.supervisor], SUPERVISOR_END):
            known.supervisor.signal(signal.SIGKILL)
    left = end_cloud(folder, state.processes_of(known))
    if not left and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return left


def _readable(folder: Path) -> CloudState | None:
    try:
        return state.read(folder)
    except FleetError:
        return None  # of another release; its processes carry the mark all the same


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    """The lock of a cloud's name; the file it is made of, which its holder may remove."""
    path = state.cloud_folder(name).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            lock(file.fileno(), path, seconds=LOCKED)
            if not _same_file(file, path):
                continue  # its last holder removed it while we waited: this lock binds nobody
            yield path
            return


def _same_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
