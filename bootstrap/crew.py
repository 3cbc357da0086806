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


class MakesRunners(Protocol):
    """A pool, as a crew needs it: `bootstrap.runners.RunnerPool`."""

    async def spawn(self) -> RunsJobs:
        """One more runner, ready for a job."""
        ...


class Crew:
    """As many runners as there ever were jobs at a time; a dead one is replaced when a job needs it."""

    def __init__(self, pool: MakesRunners) -> None:
        self._pool = pool
        self._free: list[RunsJobs] = []

    async def run(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        """Run a job in a runner of its own. Cancelled: the runner is asked to end; its pool waits for it, and sees to it."""
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
