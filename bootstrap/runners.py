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
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from bootstrap import job_process
from bootstrap.clockwork import InThread, in_time, real_clockwork
from bootstrap.environment import JobEnvironment
from bootstrap.private_files import open_to_append, open_to_read
from bootstrap.zygote import CLOSING_S, KILLED_S, Zygote, ZygoteGone
from fleet.errors import FleetError
from fleet.evals.attempts import kind_of
from fleet.evals.documents import EvalManifest, Job, JobResult
from fleet.evals.eval_file import BROKEN_ZIP
from fleet.wire import DocumentRefused

T = TypeVar("T")

READY_S = 600.0
"""Seconds until a runner is ready for a job: the first import on a new volume reads every block from S3."""

READ_S = 60.0
"""Seconds that the disk may take for what is read of a log, or of a runner's output: little of each."""

RESULT_UNUSABLE = "ResultUnusable"
"""Kind of a job whose runner says that it is done and has no result to show."""
UNREADABLE = (*BROKEN_ZIP, AttributeError, DocumentRefused, LookupError, OSError, TypeError)
"""What comes of an answer, or of a log, that isn't a runner's own."""

LONGEST_WAIT_S = 3600.0
"""Seconds that a refused call may be said to wait: Inspect waits half an hour at most, and what says so is the user's code."""
ZYGOTE_LOG = "zygote.log"
_LINE_LIMIT = 2**28


class RunnerDied(FleetError):
    """The runner's process is gone: killed by the system (memory), by the user's code, or by us."""

    how: str
    log: str
    """Where its output is."""
    said: str
    """The end of what it said of the job that it died of."""
    killed: bool
    """By a SIGKILL that wasn't ours."""

    def __init__(self, *, said: str = "", killed: bool = False, **facts: str) -> None:
        super().__init__(said=said, killed=killed, **facts)

    def message(self) -> str:
        """How it ended, and the end of what it said."""
        said = job_process.tail(Path(self.log))
        return f"a runner died: {self.how}" + (f" ({said})" if said else "")


class JobCrashed(FleetError):
    """The job failed as a whole; the runner is well. `fleet.evals.attempts` says what its kind means."""

    kind: str
    why: str
    said: str
    """The end of what its runner said meanwhile."""

    def __init__(self, *, said: str = "", **facts: str) -> None:
        super().__init__(said=said, **facts)

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
    _ours: bool = False
    """It was killed from here."""

    async def run(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        """Run a job; its log is written in `folder`. JobCrashed: the job failed. RunnerDied: get another runner.

        Cancelling leaves the process at work: kill it.
        """
        if self._busy:
            raise RuntimeError("a runner runs one job at a time")
        self._busy = True  # stays so when this is cancelled: the answer to come would be another job's
        asked: dict[str, Any] = {
            "what": {**_what(manifest), "instance": self._pool.instance},
            "job": asdict(job),
            "folder": str(await self._in_thread(self._pool.own, folder)),
            "rates": str(self._pool.rates) if self._pool.rates else None,
        }
        before = await self._in_thread(job_process.size_of, self.log)
        try:
            answer = await self._ask(asked)
        except RunnerDied as death:
            said = await self._in_thread(job_process.said_since, self.log, before)
            raise RunnerDied(how=death.how, log=death.log, said=said, killed=death.killed) from None
        self._busy = False
        try:
            if not (crash := answer.get("crashed")):
                return await _finished(answer["done"], Path(asked["folder"]), self._pool.in_thread)
            kind, why = kind_of([str(base) for base in crash["bases"]]), str(crash["why"])
        except UNREADABLE as error:
            kind, why = RESULT_UNUSABLE, f"the runner's answer can't be taken ({type(error).__name__}: {error})"
        raise JobCrashed(kind=kind, why=why, said=await self._in_thread(job_process.said_since, self.log, before))

    async def _in_thread(self, call: Callable[..., T], *args: object) -> T:
        """Wait for the disk, and keep nobody else waiting: leases are renewed meanwhile. TimeoutError: it hangs."""
        with in_time(READ_S, "reading or writing a runner's files"):
            return await self._pool.in_thread(call, *args)

    async def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(ConnectionError):
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        while "refused" in (heard := await self.hear()):
            seconds = heard["refused"]
            if isinstance(seconds, (int, float)) and 0 <= seconds < LONGEST_WAIT_S:
                self._pool.refused(float(seconds))
        return heard

    async def hear(self) -> dict[str, Any]:
        """Its next message. RunnerDied: there will be none."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        except ValueError:  # longer than any message
            line = b"\n"
        if not line.endswith(b"\n"):
            code = await self._exit_code()
            killed = code == -signal.SIGKILL and not self._ours
            raise RunnerDied(how=ending(code), log=str(self.log), killed=killed)
        try:
            heard = json.loads(line)
        except (ValueError, RecursionError):
            heard = None
        if not isinstance(heard, dict):
            raise RunnerDied(how=f"it said {line[:40]!r}, which is no message", log=str(self.log))
        return heard

    async def _exit_code(self) -> int | None:
        """Its exit code, once it has none to talk to; one that lives on then is killed. None: it doesn't end even so."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._ended), CLOSING_S)
        self.kill()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._ended), KILLED_S)
        return None

    def kill(self) -> None:
        """End the process and whatever it started, now."""
        self._ours = True
        self._signal(signal.SIGKILL)
        self._writer.close()

    def terminate(self) -> None:
        """Ask it to end, as Ctrl-C would: samples in flight unwind, sandboxes are closed."""
        self._signal(signal.SIGTERM)

    def dismiss(self) -> None:
        """Let it end: it is idle, and does so when its socket closes."""
        self._writer.close()


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
        refused: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """`folder` gets the runners' output; `env` is their whole environment (secrets included); `user` runs them.

        `instance` is put into each result; `rates` is a file of model prices; `preload` names evals to come, whose code is
        then imported once for all runners. `refused` is told at once when a provider refuses a model call by its rate, with the
        seconds until Inspect tries it again, as a share of the job: its samples run side by side.
        """
        self.refused = refused
        self.user = user
        self.instance = instance
        self.rates = rates.absolute() if rates else None
        self.in_thread = real_clockwork().in_thread
        self._environment = environment
        self._folder = folder.absolute()
        self._env = job_process.variables(environment, env, user)
        self._preload = preload
        tasks = sorted({f"{manifest.task.name} {manifest.model.name}" for manifest in preload})
        key = hashlib.sha256("\n".join(tasks).encode()).hexdigest()[:16]
        # Beside it: in it, jobs could put a link there.
        self._known = environment.folder.with_suffix(f".modules-{key}.json")
        self._numbers = count(1)
        self._zygote: Zygote | None = None
        self._zygotes: list[Zygote] = []  # every one that was started: each is closed
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
        """One more runner, ready for a job. RunnerDied: it can't start, with what it said."""
        async with self._starting:
            if self.forks is not False and (self._zygote is None or self._zygote.gone):
                await self._start_zygote()
        number = next(self._numbers)
        killed = False
        log = self._log(f"runner-{number:03}.log")
        try:
            async with asyncio.timeout(READY_S):
                return await self._ready(number, log)
        except TimeoutError:
            how = f"it wasn't ready within {READY_S:g} s"
        except ZygoteGone:
            how, log = "the process that forks runners is gone", self._folder / ZYGOTE_LOG
        except RunnerDied as death:
            how, killed = death.how, death.killed
        raise RunnerDied(how=how, log=str(log), said=job_process.said_since(log, 0), killed=killed)

    async def _ready(self, number: int, log: Path) -> Runner:
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
        try:
            await runner.hear()
        except BaseException:
            runner.kill()
            raise
        return runner

    def _log(self, name: str) -> Path:
        """A file for a runner's output, made before the runner is: the folder stays ours, and nothing of a job's is put there."""
        path = self._folder / name
        open_to_append(path, self.user).close()
        return path

    async def _start_zygote(self) -> None:
        log = self._log(ZYGOTE_LOG)
        ours, theirs = socket.socketpair()
        with theirs:
            process = await self._start("zygote", log, theirs)
        zygote = Zygote(process, ours)
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


async def _finished(done: Mapping[str, Any], folder: Path, in_thread: InThread) -> JobAnswer:
    """What a runner says that it has finished in `folder`, which is ours to name. One of UNREADABLE: that isn't so."""
    log = folder / Path(done["log"]).name  # wherever else it says: it is the user's code that speaks
    # Shielded: it is finished, and what is cancelled now must not lose it.
    with in_time(READ_S, "reading its log", shield=True):
        result = await in_thread(result_in, log)
    return JobAnswer(log=log, result=result, seconds=float(done["seconds"]), rate_limited=int(done["rate_limited"]))


def result_in(log: Path) -> JobResult:
    """What a finished log says of its job. One of UNREADABLE."""
    with open_to_read(log) as file, zipfile.ZipFile(file) as archive:
        if archive.getinfo(JobResult.MEMBER).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # Other methods have errors of their own.
            raise zipfile.BadZipFile("its result is compressed as no runner does")
        return JobResult.read(archive.read(JobResult.MEMBER))


def _what(manifest: EvalManifest) -> dict[str, Any]:
    """What a job process needs to know of an eval."""
    return manifest.model_dump(mode="json", exclude={"jobs", "sample_ids", "environment", "identity"})


def ending(code: int | None) -> str:
    """How a process ended, for a person. None: it was killed and doesn't end."""
    if code is None:
        return (
            f"killed, and not gone {KILLED_S:g} s later: it waits within the kernel, for a disk or a mount most likely"
        )
    if code == -signal.SIGKILL:
        return "killed (out of memory, or stopped by the worker)"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
