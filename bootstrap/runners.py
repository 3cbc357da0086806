"""Warm runners, seen from the side that has jobs: a pool makes them, a runner runs one job at a time.

The processes live in the job environment (`bootstrap/runner/serve.py` says the protocol). One zygote imports Inspect and the
tasks once and forks each runner, so that 32 of them cost one import. Where a fork isn't safe (the user's packages leave a
thread running), each runner is a process of its own: slower to start, otherwise the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import zipfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from bootstrap.private_files import open_to_append
from fleet.errors import FleetError
from fleet.evals.attempts import kind_of
from fleet.evals.documents import EvalManifest, Job, JobResult

CLOSING_S = 20.0
"""Seconds that the runners get to unwind when a pool closes; then they are killed."""

_LINE_LIMIT = 2**28


class RunnerDied(FleetError):
    """The runner's process is gone: killed by the system (memory), by the user's code, or by us."""

    how: str
    log: str
    """Where its output is."""

    def message(self) -> str:
        """How it ended, and the end of what it said."""
        said = job_process.tail(Path(self.log))
        return f"a runner died: {self.how}" + (f" ({said})" if said else "")


class JobCrashed(FleetError):
    """The job failed as a whole; the runner is well. `fleet.evals.attempts` says what its kind means."""

    kind: str
    why: str

    def message(self) -> str:
        """The kind, and what was said."""
        return f"{self.kind}: {self.why}"


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """A finished job."""

    log: Path
    """Inspect's log with our `JobResult` in it."""
    result: JobResult
    seconds: float
    rate_limited: int
    """Model calls that the provider refused by rate; Inspect tried them again."""


@dataclass(slots=True)
class Runner:
    """One warm process. Made by `RunnerPool.spawn`."""

    pid: int
    log: Path
    """Where its output goes."""
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _signal: Callable[[int], None]
    _ended: Awaitable[int]
    """Its exit code, negative for a signal."""
    _pool: RunnerPool
    _busy: bool = False

    async def run(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        """Run a job; its log is written in `folder`. JobCrashed: the job failed. RunnerDied: get another runner.

        Cancelling leaves the process at work: kill it.
        """
        if self._busy:
            raise RuntimeError("a runner runs one job at a time")
        asked = {
            "what": {**_what(manifest), "instance": self._pool.instance},
            "job": job.model_dump(mode="json"),
            "folder": str(self._pool.own(folder)),
            "rates": str(self._pool.rates) if self._pool.rates else None,
        }
        self._busy = True  # stays so when this is cancelled: the answer to come would be another job's
        answer = await self._ask(asked)
        self._busy = False
        if crash := answer.get("crashed"):
            raise JobCrashed(kind=kind_of(crash["bases"]), why=crash["why"])
        done = answer["done"]
        log = Path(done["log"])
        with zipfile.ZipFile(log) as archive:
            result = JobResult.read(archive.read(JobResult.MEMBER))
        return JobAnswer(log=log, result=result, seconds=done["seconds"], rate_limited=done["rate_limited"])

    async def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(ConnectionError):
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        return await self.hear()

    async def hear(self) -> dict[str, Any]:
        """Its next message. RunnerDied: there will be none."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        if not line.endswith(b"\n"):
            raise RunnerDied(how=ending(await self._ended), log=str(self.log))
        heard: dict[str, Any] = json.loads(line)
        return heard

    def kill(self) -> None:
        """End the process and whatever it started, now."""
        self._signal(signal.SIGKILL)
        self._writer.close()

    def terminate(self) -> None:
        """Ask it to end, as Ctrl-C would: samples in flight unwind, sandboxes are closed."""
        self._signal(signal.SIGTERM)


class RunnerPool:
    """Runners of one job environment. An async context: when it ends, no process of it is left."""

    def __init__(
        self,
        environment: JobEnvironment,
        folder: Path,
        env: Mapping[str, str],
        user: str | None = None,
        *,
        instance: str = "",
        rates: Path | None = None,
        preload: Sequence[EvalManifest] = (),
    ) -> None:
        """`folder` gets the runners' output; `env` is their whole environment (secrets included); `user` runs them.

        `instance` is put into each result; `rates` is a file of model prices; `preload` names evals to come, whose code is
        then imported once for all runners.
        """
        self.user = user
        self.instance = instance
        self.rates = rates.absolute() if rates else None
        self._environment = environment
        self._folder = folder.absolute()
        self._env = job_process.variables(environment, env, user)
        self._preload = preload
        tasks = sorted({f"{manifest.task.name} {manifest.model.name}" for manifest in preload})
        key = hashlib.sha256("\n".join(tasks).encode()).hexdigest()[:16]
        self._known = environment.folder.with_suffix(
            f".modules-{key}.json"
        )  # beside it: in it, jobs could put a link there
        self._numbers = count(1)
        self._zygote: _Zygote | None = None
        self._zygotes: list[_Zygote] = []  # every one that was started: each is closed
        self._starting = asyncio.Lock()
        self._own: set[asyncio.subprocess.Process] = set()
        self._watches: set[asyncio.Task[int]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.forks: bool | None = None
        """Whether runners are forked; None: not known yet."""

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            writer.close()
        for process in self._own:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        # Also when all of this is being cancelled: what is left now would be left for good. Bounded by CLOSING_S.
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*(zygote.close() for zygote in self._zygotes))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(process.wait() for process in self._own)), CLOSING_S)
        for process in self._own:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def own(self, folder: Path) -> Path:
        """Make the folder, and make it the runners' own; its full path."""
        folder.mkdir(parents=True, exist_ok=True)
        job_process.give(folder, self.user)
        return folder.absolute()

    async def spawn(self) -> Runner:
        """One more runner, ready for a job. RunnerDied: it can't start; its log says why."""
        async with self._starting:
            if self.forks is not False and (self._zygote is None or self._zygote.gone):
                await self._start_zygote()
        number = next(self._numbers)
        log = self._log(f"runner-{number:03}.log")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                if self.forks and self._zygote:
                    pid, send, ended = await self._zygote.fork(number, log, theirs)
                else:
                    pid, send, ended = await self._start_alone(log, theirs)
            reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)
        except BaseException:  # cancelled, most of all: the runner sees its socket close, and ends
            ours.close()
            raise
        self._writers.append(writer)
        runner = Runner(pid, log, reader, writer, send, ended, self)
        await runner.hear()
        return runner

    def _log(self, name: str) -> Path:
        """A file for a runner's output, made before the runner is: the folder stays ours, and nothing of a job's is put there."""
        path = self._folder / name
        open_to_append(path, self.user).close()
        return path

    async def _start_zygote(self) -> None:
        log = self._log("zygote.log")
        ours, theirs = socket.socketpair()
        with theirs:
            process = await self._start("zygote", log, theirs)
        zygote = _Zygote(process, ours, log)
        self._zygotes.append(zygote)
        self.forks = await zygote.warm([_what(manifest) for manifest in self._preload], self._known)
        if self.forks:
            self._zygote = zygote

    async def _start_alone(self, log: Path, theirs: socket.socket) -> tuple[int, Callable[[int], None], Awaitable[int]]:
        process = await self._start("runner", log, theirs)
        self._own.add(process)

        def send(number: int) -> None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGKILL else os.kill)(process.pid, number)

        ended = asyncio.ensure_future(process.wait())
        self._watches.add(ended)
        ended.add_done_callback(self._watches.discard)
        return process.pid, send, asyncio.shield(ended)

    async def _start(self, role: str, log: Path, theirs: socket.socket) -> asyncio.subprocess.Process:
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *job_process.command(self._environment, "serve", role, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._environment.working_folder,
                env=self._env,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                **job_process.identity(self.user),  # type: ignore[arg-type]
            )


@dataclass(slots=True)
class _Zygote:
    """The pool's end of the socket to the zygote."""

    process: asyncio.subprocess.Process
    sock: socket.socket
    log: Path
    gone: bool = False
    _warm: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _spawned: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    _ended: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    _listening: asyncio.Task[None] | None = None

    async def warm(self, evals: list[dict[str, Any]], known: Path) -> bool:
        """Have it import; whether it can fork safely. False too where it died: then each runner will say why.

        What it had to find out by a trial is kept in `known`, which saves the next zygote of this environment the trial.
        """
        self.sock.setblocking(False)
        self._listening = asyncio.create_task(self._listen())
        line = json.dumps({"warm": evals, "modules": _names(known)}).encode() + b"\n"
        await asyncio.get_running_loop().sock_sendall(self.sock, line)
        said = await self._warm
        if said.get("warm"):
            with contextlib.suppress(OSError):  # it only saves time
                part = known.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps(said["warm"]))
                part.replace(known)
        return said.get("threads") == 1

    async def fork(
        self, number: int, log: Path, theirs: socket.socket
    ) -> tuple[int, Callable[[int], None], Awaitable[int]]:
        """Fork a runner that serves on `theirs`. RunnerDied: the zygote is gone."""
        loop = asyncio.get_running_loop()
        spawned = self._spawned[number] = loop.create_future()
        ended = self._ended[number] = loop.create_future()
        line = json.dumps({"spawn": number, "log": str(log)}).encode() + b"\n"
        with contextlib.suppress(OSError):
            socket.send_fds(self.sock, [line], [theirs.fileno()])
        pid = await spawned
        if not pid:
            raise RunnerDied(how="the process that forks runners is gone", log=str(self.log))

        def send(wanted: int) -> None:
            with contextlib.suppress(OSError):
                self.sock.send(json.dumps({"runner": number, "signal": wanted}).encode() + b"\n")

        return pid, send, asyncio.shield(ended)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        rest = b""
        while True:
            try:
                data = await loop.sock_recv(self.sock, 2**16)
            except OSError:
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        self.gone = True
        if not self._warm.done():
            self._warm.set_result({})
        for future in (*self._spawned.values(), *self._ended.values()):
            if not future.done():
                future.set_result(0)

    def _hear(self, message: dict[str, Any]) -> None:
        if "warm" in message:
            self._warm.set_result(message)
        elif "spawned" in message:
            self._spawned.pop(message["spawned"]).set_result(message["pid"])
        elif "ended" in message and not (future := self._ended.pop(message["ended"])).done():
            future.set_result(message["status"])

    async def close(self) -> None:
        """End it with all of its runners."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()  # it may be importing, and not listen
        try:
            await asyncio.wait_for(self.process.wait(), CLOSING_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()
        if self._listening:
            self._listening.cancel()
        self.sock.close()


def _names(known: Path) -> list[str]:
    try:
        names: list[str] = json.loads(known.read_text())
    except (OSError, ValueError):
        return []
    return names


def _what(manifest: EvalManifest) -> dict[str, Any]:
    """What a job process needs to know of an eval."""
    return manifest.model_dump(mode="json", exclude={"jobs", "sample_ids", "environment", "identity"})


def ending(code: int) -> str:
    """How a process ended, for a person."""
    if code == -signal.SIGKILL:
        return "killed (out of memory, or stopped by the worker)"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
