"""The parent's side of the verb `recompute`: Inspect in the job environment computes what a merged log says as a whole.

`Recompute` is what `fleet.evals.merge` is given. The child is started first and imports while the parent copies, or has done so
before, if it is one of `Warm`; it answers with a file, and its output goes to a file too, whose end an error quotes. It ends with
its standard input: also where this process is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from fleet.errors import FleetError
from fleet.evals.merge import HeaderFacts

PATIENCE_S = 1800.0
"""How long the metrics of a whole eval may take: some draw thousands of samples of the scores, for minutes."""


_ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
"""So that glibc gives a large piece of memory back when it is freed, and keeps none apart for each thread. As settings of the
process: what the environment has of them counts more."""


class RecomputeFailed(FleetError):
    """Inspect didn't compute the merged log's header in the job environment. The results themselves are kept."""

    why: str
    lacked: str
    """What the run's jobs had and this process hadn't, for a person; empty: nothing."""

    def message(self) -> str:
        """One line, with the end of what the process said, and how to compute them with what was lacking."""
        said = f"the metrics of the merged log couldn't be computed in the job environment: {self.why}"
        return f"{said}. {remedy(self.lacked)}" if self.lacked else said


def remedy(lacked: str) -> str:
    """What may be the reason, and what helps, where metrics can't be computed and `lacked` is what the jobs had more."""
    return (
        f"The reason may be that this process lacks {lacked}. Start the same request again: it collects with all of them, and "
        "runs no finished job again"
    )


@dataclass(frozen=True, slots=True)
class Recompute:
    """Computes headers in a job environment."""

    environment: JobEnvironment
    env: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment of the process, keys among it; ours, if none is given."""
    lacked: str = ""
    """What the run's jobs had and this process hasn't, for a person."""
    patience: float = PATIENCE_S
    """Seconds."""
    warm: Warm | None = field(default=None, repr=False)
    """Processes that may have been started ahead."""

    @contextmanager
    def __call__(self, plan_log: Path) -> Iterator[RecomputeProcess]:
        """Have Inspect ready for a plan log, and end it at the end of the block, asked or not."""
        child = self.warm.take(self.environment) if self.warm else None
        child = child or Child(self.environment, os.environ if self.env is None else self.env)
        try:
            child.tell({"plan": str(plan_log.resolve())})
            yield RecomputeProcess(child, self.patience, self.lacked)
        finally:
            child.end()


class Child:
    """A process in a job environment that imports Inspect and waits for a plan log."""

    def __init__(self, environment: JobEnvironment, env: Mapping[str, str]) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="recompute-", suffix=".log")  # noqa: SIM115 - closed by `end`
        self.log = Path(self._file.name)
        self.process = subprocess.Popen(
            job_process.command(environment, "recompute"),
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            cwd=environment.working_folder,
            env=job_process.variables(environment, {**_ALLOCATOR, **env}),
            bufsize=0,
        )

    def tell(self, what: Mapping[str, str]) -> None:
        """Write a line to it. One that is dead hears nothing, which shows when it is asked."""
        with suppress(BrokenPipeError):
            assert self.process.stdin is not None  # noqa: S101 (it was asked for)
            self.process.stdin.write(json.dumps(what).encode() + b"\n")

    def end(self) -> None:
        """Kill it, if it isn't over, and remove what it said."""
        self.process.kill()
        self.process.communicate()  # without a bound: it was killed, and its output is a file, which holds up nobody
        self._file.close()


class Warm:
    """Processes started ahead of a run's merges, one at a time: while one is at work, the next one imports.

    A block: none is left when it ends.
    """

    def __init__(self, environment: JobEnvironment, env: Mapping[str, str], merges: int) -> None:
        """`env`: as of `Recompute`. `merges`: how many there are to come."""
        self._environment = environment
        self._env = dict(env)
        self._left = merges
        self._next: Child | None = None

    def start(self) -> None:
        """Start one, unless one waits or all merges have had theirs. OSError: it can't be started."""
        if self._next is None and self._left > 0:
            self._left -= 1
            self._next = Child(self._environment, self._env)

    @property
    def waiting(self) -> int | None:
        """The id of the process that waits."""
        return self._next.process.pid if self._next else None

    def take(self, environment: JobEnvironment) -> Child | None:
        """The process that waits, for a merge in this environment; None: there is none. The next one is started.

        Where it can't be, its merge starts one for itself.
        """
        child = self._next
        if child is None or environment != self._environment:
            return None
        self._next = None
        with suppress(OSError):
            self.start()
        if child.process.poll() is None:
            return child
        child.end()
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the one that waits; no more are started."""
        if self._next is not None:
            self._next.end()
        self._next, self._left = None, 0


class RecomputeProcess:
    """One process, which computes one header."""

    def __init__(self, child: Child, patience: float, lacked: str) -> None:
        self._process = child.process
        self._log = child.log
        self._patience = patience
        self._lacked = lacked

    def finish(self, records: Path, facts: HeaderFacts, out: Path) -> None:
        """Ask for the header, and wait for it. RecomputeFailed: the process ended, or took too long, without one."""
        order = {
            "records": str(records.resolve()),
            "out": str(out.resolve()),
            "status": facts.outcome.status,
            "error": facts.outcome.error,
            "total_samples": facts.total_samples,
            "started_at": facts.started_at,
            "completed_at": facts.completed_at,
        }
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        # A wait with a bound of its own would look every twentieth of a second: a fortieth of a merge of two thousand samples.
        bound = threading.Timer(self._patience, give_up)
        bound.daemon = True
        bound.start()
        try:
            self._process.communicate(json.dumps(order).encode() + b"\n")
        finally:
            bound.cancel()
        if late.is_set():
            raise self._failed(f"no answer within {self._patience:.0f} s")
        if self._process.returncode != 0 or not out.is_file():
            raise self._failed(f"the process ended with exit code {self._process.returncode}")

    def _failed(self, why: str) -> RecomputeFailed:
        """The error: `why`, and the end of what the process said."""
        said = ": ".join(filter(None, [why, job_process.tail(self._log)]))
        return RecomputeFailed(why=said, lacked=self._lacked)
