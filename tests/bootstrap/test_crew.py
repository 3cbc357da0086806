from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from bootstrap.crew import Crew
from bootstrap.runners import JobAnswer, JobCrashed, RunnerDied
from fleet.evals.documents import EvalManifest, Job
from tests.bootstrap.world import manifest_of, result_of

MANIFEST = manifest_of(3)
JOB = MANIFEST.jobs[0]


class FakeRunner:
    def __init__(self, number: int, meets: Callable[[], Exception | None]) -> None:
        self.number = number
        self.meets = meets
        self.alive = True
        self.busy = False
        self.asked_to_end = False
        self.jobs = 0

    async def run(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        assert self.alive
        assert not self.busy, "one job at a time"
        self.busy = True
        try:
            await anyio.lowlevel.checkpoint()
            if error := self.meets():
                raise error
        finally:
            self.busy = False
        self.jobs += 1
        return JobAnswer(log=folder, result=result_of(job), seconds=1.0, rate_limited=0)

    def kill(self) -> None:
        self.alive = False

    def terminate(self) -> None:
        self.asked_to_end = True

    def dismiss(self) -> None:
        assert not self.busy
        self.alive = False


class FakePool:
    def __init__(self, *errors: Exception) -> None:
        self.made: list[FakeRunner] = []
        self.errors = list(errors)

    async def spawn(self) -> FakeRunner:
        self.made.append(FakeRunner(len(self.made), lambda: self.errors.pop(0) if self.errors else None))
        return self.made[-1]


def test_one_runner_does_many_jobs_and_two_at_a_time_need_two() -> None:
    pool = FakePool()

    async def main() -> None:
        crew = Crew(pool)
        for _ in range(3):
            await crew.run(MANIFEST, JOB, Path())
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(crew.run, MANIFEST, JOB, Path())

    anyio.run(main)
    assert [runner.jobs for runner in pool.made] == [4, 1]


def test_a_crashed_job_leaves_its_runner_for_the_next() -> None:
    pool = FakePool(JobCrashed(kind="ConnectError", why="no"))

    async def main() -> None:
        crew = Crew(pool)
        with pytest.raises(JobCrashed):
            await crew.run(MANIFEST, JOB, Path())
        await crew.run(MANIFEST, JOB, Path())

    anyio.run(main)
    assert [runner.jobs for runner in pool.made] == [1]


def test_a_dead_runner_is_replaced() -> None:
    pool = FakePool(RunnerDied(how="signal 9", log="/nowhere"))

    async def main() -> None:
        crew = Crew(pool)
        with pytest.raises(RunnerDied):
            await crew.run(MANIFEST, JOB, Path())
        await crew.run(MANIFEST, JOB, Path())

    anyio.run(main)
    assert [(runner.alive, runner.jobs) for runner in pool.made] == [(False, 0), (True, 1)]


def test_a_cancelled_job_asks_its_runner_to_end() -> None:
    pool = FakePool()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await Crew(pool).run(MANIFEST, JOB, Path())

    anyio.run(main)
    assert [runner.asked_to_end for runner in pool.made] == [True]


def test_runners_beyond_the_slots_end_once_they_are_idle() -> None:
    """Each holds the memory of all that it has imported."""
    pool = FakePool()

    async def main() -> None:
        crew = Crew(pool)

        async def at_once(jobs: int) -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(jobs):
                    tasks.start_soon(crew.run, MANIFEST, JOB, Path())

        def living() -> int:
            return sum(runner.alive for runner in pool.made)

        await at_once(8)
        assert living() == 8
        crew.fit(6)
        assert living() == 6, "those that idle end at once"
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(crew.run, MANIFEST, JOB, Path())
            await anyio.lowlevel.checkpoint()
            crew.fit(2)
            assert living() == 5, "and those at work after their job"
        assert living() == 2
        crew.fit(4)
        await at_once(4)
        assert living() == 4

    anyio.run(main)
