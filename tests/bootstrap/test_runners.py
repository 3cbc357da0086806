from __future__ import annotations

import asyncio
import os
import stat
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from inspect_ai.log import read_eval_log

from bootstrap import runners, zygote
from bootstrap.environment import JobEnvironment
from bootstrap.planner import plan_tasks
from bootstrap.runners import JobAnswer, JobCrashed, Runner, RunnerDied, RunnerPool
from fleet.evals.documents import EnvironmentSpec, EvalManifest, Job, JobResult, SampleRef
from fleet.evals.plan import make_manifest
from fleet.evals.request import ModelSpec
from tests.job_environment import kit_request
from tests.processes import processes_with

TASKS = {
    "plain": {},
    "numbered": {},
    "chance": {},
    "epochal": {"samples_per_job": 8},
    "failing": {"samples_per_job": 6},
    "dicts": {},
    "pictured": {},
    "growing": {},
    "stopping": {},
    "deadly": {},
    "slow": {},
}


@pytest.fixture(scope="module")
def manifests(environment: JobEnvironment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, EvalManifest]:
    """A manifest for each task of the kit, all planned in one process."""
    request = kit_request(*TASKS)
    plans = plan_tasks(request, environment, tmp_path_factory.mktemp("plans"), env=os.environ)
    return {
        name: make_manifest(plan, request.model_copy(update=fields), environment.spec, slots=2)
        for (name, fields), plan in zip(TASKS.items(), plans, strict=True)
    }


def in_pool(
    environment: JobEnvironment,
    folder: Path,
    work: Callable[[RunnerPool], Awaitable[None]],
    *,
    env: dict[str, str] | None = None,
    preload: Sequence[EvalManifest] = (),
) -> None:
    async def main() -> None:
        variables = {**os.environ, **(env or {})}
        async with RunnerPool(environment, folder / "runners", variables, instance="i-1", preload=preload) as pool:
            await work(pool)

    asyncio.run(main())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.fault("sample-fails")
def test_a_pool_of_runners_does_all_kinds_of_jobs(
    environment: JobEnvironment, manifests: dict[str, EvalManifest], tmp_path: Path
) -> None:
    """One warm runner, one eval after the other; each job is its planned pairs with their real epochs, and a readable log."""
    answers: dict[str, list[JobAnswer]] = {}
    pids: list[int] = []

    async def work(pool: RunnerPool) -> None:
        runner = await pool.spawn()
        pids.append(runner.pid)
        for name, manifest in manifests.items():
            if name not in {"deadly", "slow"}:
                folder = tmp_path / name
                answers[name] = [await runner.run(manifest, job, folder) for job in manifest.jobs]
        pids.append((await pool.spawn()).pid)
        assert pool.forks, "the kit starts no thread, so its runners are forked"

    in_pool(environment, tmp_path, work)
    assert {stat.S_IMODE(log.stat().st_mode) for log in (tmp_path / "runners").iterdir()} == {0o600}
    assert len(set(pids)) == 2
    assert not any(alive(pid) for pid in pids), "a closed pool leaves no process"

    for name in ("plain", "numbered", "chance", "epochal", "failing", "dicts"):
        for job, answer in zip(manifests[name].jobs, answers[name], strict=True):
            assert pairs(answer) == {(ref.id, ref.epoch) for ref in job.samples}, name
            assert answer.result.eval_id == manifests[name].eval_id
            assert answer.result.job == job.job
            assert answer.result.instance == "i-1"
            with zipfile.ZipFile(answer.log) as log:
                assert {f"samples/{ref.id}_epoch_{ref.epoch}.json" for ref in job.samples} <= set(log.namelist())
                assert JobResult.read(log.read(JobResult.MEMBER)) == answer.result
    [epochal] = answers["epochal"]
    assert {epoch for _, epoch in pairs(epochal)} == {1, 2}
    assert {record.epoch for record in epochal.result.samples if value(record.scores, "says_epoch") == 1.0} == {1, 2}
    assert all(record.metadata == {"n": int(str(record.id)[1:])} for record in epochal.result.samples), (
        "the dataset's own"
    )
    [failing] = answers["failing"]
    errors = {record.id: record.error for record in failing.result.samples if record.error}
    assert errors.keys() == {"w1", "w4"}
    usage = [answer.result.model_usage["kit/model"]["total_tokens"] for answer in answers["plain"]]
    assert sum(usage) == sum(len(f"say word{n}") + len(f"word{n}") for n in range(10))
    assert {record.id for record in answers["growing"][0].result.samples} == {
        *(f"w{n}" for n in range(3)),
        *(f"more-w{n}" for n in range(3)),
    }
    assert answers["stopping"][0].result.samples
    [pictured] = read_eval_log(str(answers["pictured"][0].log), resolve_attachments="full").samples or []
    assert pictured.model_dump()["input"][0]["content"][0]["image"].startswith("data:image/png"), (
        "inlined, as in an eval"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.fault("planted-link")
def test_where_runners_are_another_users_their_logs_lie_where_only_root_puts_files(tmp_path: Path) -> None:
    """Root opens a log for each runner, also after code of that user ran: it could put a link there."""
    environment = JobEnvironment(
        EnvironmentSpec(python="3.11", lock=""), tmp_path / "e" / "venv" / "bin" / "python", None
    )
    victim = tmp_path / "roots"
    victim.touch(mode=0o644)

    async def main() -> None:
        async with RunnerPool(environment, tmp_path / "runners", {}, user="nobody") as pool:
            assert (tmp_path / "runners").stat().st_uid == 0
            (tmp_path / "runners" / "zygote.log").symlink_to(victim)
            with pytest.raises(OSError, match="symbolic"):
                await pool.spawn()

    asyncio.run(main())
    assert victim.stat().st_uid == 0


@pytest.mark.timeout(60)
@pytest.mark.fault("hang")
def test_imports_that_hang_end_as_a_dead_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's may wait for a network for ever: zygote and runner alike."""
    monkeypatch.setattr(zygote, "WARM_S", 0.2)
    monkeypatch.setattr(runners, "READY_S", 0.2)
    start, pids = RunnerPool._start, []

    async def noted(self: RunnerPool, *what: Any) -> Any:
        process = await start(self, *what)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(RunnerPool, "_start", noted)
    python = tmp_path / "e" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexec sleep 300\n")
    python.chmod(0o755)
    (tmp_path / "e" / "empty").mkdir()
    environment = JobEnvironment(EnvironmentSpec(python="3.11", lock=""), python, None)

    async def work(pool: RunnerPool) -> None:
        with pytest.raises(RunnerDied, match=r"it wasn't ready within 0\.2 s"):
            await pool.spawn()

    in_pool(environment, tmp_path, work)
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_runner_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A record of the job's failure is made of it."""
    python = tmp_path / "e" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho Traceback\necho no module of that name >&2\nexit 3\n")
    python.chmod(0o755)
    (tmp_path / "e" / "empty").mkdir()
    environment = JobEnvironment(EnvironmentSpec(python="3.11", lock=""), python, None)

    async def work(pool: RunnerPool) -> None:
        with pytest.raises(RunnerDied, match=r"it ended with exit code 3 \(Traceback \| no module") as death:
            await pool.spawn()
        assert death.value.said == "Traceback\nno module of that name"

    in_pool(environment, tmp_path, work)


@pytest.mark.fault("job-fails")
def test_a_killed_runner_is_told_and_replaced(
    environment: JobEnvironment, manifests: dict[str, EvalManifest], tmp_path: Path
) -> None:
    """User code that ends its process costs the runner, not the pool; a runner that sleeps can be killed or asked to end."""

    async def work(pool: RunnerPool) -> None:
        deadly, slow, plain = manifests["deadly"], manifests["slow"], manifests["plain"]
        first = await pool.spawn()
        with pytest.raises(RunnerDied, match="killed") as death:
            await first.run(deadly, deadly.jobs[0], tmp_path / "deadly")
        assert death.value.killed
        assert not alive(first.pid)

        for end in (Runner.kill, Runner.terminate):
            folder = tmp_path / end.__name__
            runner = await pool.spawn()
            running = asyncio.create_task(runner.run(slow, slow.jobs[0], folder))
            await until_sleeping(folder)
            end(runner)
            with pytest.raises(RunnerDied) as death:
                await running
            assert not death.value.killed, "but by us, or not at all"
            assert not alive(runner.pid)

        third = await pool.spawn()
        answer = await third.run(plain, plain.jobs[0], tmp_path / "plain")
        assert len(answer.result.samples) == len(plain.jobs[0].samples)
        third.dismiss()
        with pytest.raises(RunnerDied, match="exit code 0"):
            await third.hear()
        assert not alive(third.pid)

    in_pool(environment, tmp_path, work)
    [log] = (tmp_path / "terminate" / "log").glob("*.eval")
    assert read_eval_log(str(log), header_only=True).status == "cancelled", "Inspect unwound and finished its log"


async def until_sleeping(folder: Path) -> None:
    """The job's log is begun: its samples are at work, or about to be."""
    for _ in range(600):
        if list(folder.glob("log/*.eval")):  # noqa: ASYNC240 - a look, not a read
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"no log appeared in {folder}")


def test_a_sample_that_isnt_the_planned_one_crashes_the_job_and_not_the_runner(
    environment: JobEnvironment, manifests: dict[str, EvalManifest], tmp_path: Path
) -> None:
    """Content and id are checked where the sample runs, since another dataset would be scored under the planned name."""
    plain = manifests["plain"]
    right = plain.jobs[0].samples[0]

    async def work(pool: RunnerPool) -> None:
        runner = await pool.spawn()
        for ref, kind in (
            (SampleRef(id=right.id, epoch=1, digest="0" * 16), "SampleChanged"),
            (SampleRef(id="nobody", epoch=1, digest=right.digest), "SampleAbsent"),
        ):
            with pytest.raises(JobCrashed) as crash:
                await runner.run(plain, Job(job="000000-00000000", samples=[ref]), tmp_path / kind)
            assert crash.value.kind == kind
            assert "Traceback" in crash.value.said
            assert kind in crash.value.said
        gone = plain.model_copy(update={"task": plain.task.model_copy(update={"name": "evalkit/gone"})})
        with pytest.raises(JobCrashed) as crash:
            await runner.run(gone, plain.jobs[0], tmp_path / "gone")
        assert crash.value.kind == "TaskUnknown"
        answer = await runner.run(plain, plain.jobs[0], tmp_path / "plain")
        assert answer.result.samples

    in_pool(environment, tmp_path, work)


def test_homes_and_caches_may_lie_elsewhere_than_where_it_was_planned(
    environment: JobEnvironment, tmp_path: Path
) -> None:
    """Whoever plans has another HOME than an instance has. A sample may name either; a dataset lies in the cache of each."""
    here, there = (tmp_path / name for name in ("here", "there"))
    homes = [
        "/root",
        "/home/alice/.bashrc",
        *(f"{home}{rest}" for home in (here, there) for rest in ("", "/notes.txt")),
    ]
    request = kit_request(models=["kit/m"], tasks=[{"name": "evalkit/placed", "args": {"homes": homes}}])
    ours = {name: value for name, value in os.environ.items() if name not in ("HF_HOME", "XDG_CACHE_HOME")}
    [plan] = plan_tasks(request, environment, tmp_path / "plan", env={**ours, "HOME": str(here)})
    manifest = make_manifest(plan, request, environment.spec, slots=1)

    async def work(pool: RunnerPool) -> None:
        runner = await pool.spawn()
        done = [await runner.run(manifest, job, tmp_path / "job") for job in manifest.jobs]
        assert sum(len(answer.result.samples) for answer in done) == len(homes)

    in_pool(environment, tmp_path, work, env={"HOME": str(there), "HF_HOME": "/srv/models"})


def test_where_a_fork_isnt_safe_runners_are_processes_of_their_own(
    environment: JobEnvironment, manifests: dict[str, EvalManifest], tmp_path: Path
) -> None:
    """A package that leaves a thread running would deadlock forked runners, now and then.

    Refusals by rate are counted, and told at once.
    """
    limited = manifests["plain"].model_copy(
        update={
            "model": ModelSpec(name="kit/limited", args={"refusals": 2}),
            "generate_config": {"max_retries": 3},
        }
    )
    pids: list[int] = []

    async def work(pool: RunnerPool) -> None:
        runner = await pool.spawn()
        assert pool.forks is False
        pids.append(runner.pid)
        waits: list[float] = []
        pool.refused = waits.append
        answer = await runner.run(limited, limited.jobs[0], tmp_path / "job")
        assert answer.rate_limited == len(waits) == 2
        assert all(seconds > 0 for seconds in waits)
        assert not any(record.error for record in answer.result.samples)
        again = await runner.run(limited, limited.jobs[1], tmp_path / "job")
        assert again.rate_limited == 0

    in_pool(environment, tmp_path, work, env={"EVALKIT_THREAD": "1"}, preload=[manifests["plain"]])
    assert not alive(pids[0])


def pairs(answer: JobAnswer) -> set[tuple[int | str, int]]:
    return {(record.id, record.epoch) for record in answer.result.samples}


def value(scores: dict[str, dict[str, object]] | None, name: str) -> object:
    return (scores or {}).get(name, {}).get("value")


def test_a_pool_that_is_cancelled_leaves_no_process(environment: JobEnvironment, tmp_path: Path) -> None:
    """Whenever it comes: while the zygote imports, or while runners wait for jobs."""
    mark = str(tmp_path)
    seen: list[int] = []

    async def cancelled_after(spawns: int, folder: Path) -> None:
        with anyio.move_on_after(30) as scope:
            async with RunnerPool(environment, folder, {**os.environ, "MARK_OF_THE_TEST": mark}) as pool:
                for _ in range(spawns):
                    seen.append((await pool.spawn()).pid)
                    assert processes_with(f"MARK_OF_THE_TEST={mark}").keys() >= set(seen)
                scope.cancel() if spawns else asyncio.get_running_loop().call_later(0.3, scope.cancel)
                await pool.spawn()
        assert scope.cancelled_caught

    for spawns in (0, 1):
        asyncio.run(cancelled_after(spawns, tmp_path / str(spawns)))
    assert processes_with(f"MARK_OF_THE_TEST={mark}") == {}
