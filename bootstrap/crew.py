"""The warm runners of this worker: a job takes a free one, or has one more made, and leaves it for the next job."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bootstrap.runners import JobAnswer, JobCrashed, RunnerDied
from fleet.evals.documents import EvalManifest, Job


class RunsJobs(Protocol):
    """A runner, as a crew needs it: `bootstrap.runners.Runner`."""

    async def run(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        """Run one job. JobCrashed: the job failed, the runner is well. RunnerDied: it is no more."""
        ...

    def kill(self) -> None:
        """End it now, whatever it does."""
        ...

    def terminate(self) -> None:
        """Ask it to end, which closes its sandboxes."""
        ...

    def dismiss(self) -> None:
        """Let it end: it is idle, and gets no further job."""
        ...


class MakesRunners(Protocol):
    """A pool, as a crew needs it: `bootstrap.runners.RunnerPool`."""

    async def spawn(self) -> RunsJobs:
        """One more runner, ready for a job."""
        ...


class Crew:
    """As many runners as there were jobs at a time, and slots for; a dead one is replaced when a job needs it."""

    def __init__(self, pool: MakesRunners) -> None:
        self._pool = pool
        self._free: list[RunsJobs] = []
        self._busy = 0
        self._most: int | None = None

    async def run(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        """Run a job in a runner of its own. Cancelled: the runner is asked to end; its pool waits for it, and sees to it."""
        self._busy += 1
        try:
            return await self._run(manifest, job, folder)
        finally:
            self._busy -= 1
            self._dismiss_surplus()

    def fit(self, most: int) -> None:
        """Keep no more than `most` runners: each holds memory. Those at work end once they are idle."""
        self._most = most
        self._dismiss_surplus()

    async def _run(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        runner = self._free.pop() if self._free else await self._pool.spawn()
        try:
            answer = await runner.run(manifest, job, folder)
        except JobCrashed:
            self._free.append(runner)
            raise
        except RunnerDied:
            runner.kill()  # what it has started may live on
            raise
        except BaseException:
            runner.terminate()
            raise
        self._free.append(runner)
        return answer

    def _dismiss_surplus(self) -> None:
        while self._most is not None and self._free and self._busy + len(self._free) > self._most:
            self._free.pop(0).dismiss()
