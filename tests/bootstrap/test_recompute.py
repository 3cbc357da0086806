"""The header of a merged log is computed in the job environment, and a process that can't is an error in one line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from inspect_ai import Task
from inspect_ai.log import read_eval_log
from inspect_ai.solver import generate

from bootstrap.environment import JobEnvironment
from bootstrap.plain import run_plain
from bootstrap.planner import plan_tasks
from bootstrap.recompute import Child, Recompute, RecomputeFailed, Warm
from bootstrap.runner.job import summarise
from bootstrap.runners import RunnerPool
from fleet.evals.documents import EnvironmentSpec, EvalManifest
from fleet.evals.merge import merge
from fleet.evals.plan import make_manifest
from tests.fleet.evals.merge_kit import cut_job, job_name, manifest, plan, run
from tests.fleet.evals.merge_tasks import numbers, renames_kind, words
from tests.job_environment import kit_request
from tests.parity.compare import compare

LONG = "long " * 200
SPEC = EnvironmentSpec(python="3.11", lock="")


def own_environment(folder: Path, python: Path = Path(sys.executable)) -> JobEnvironment:
    """Our own interpreter, started in `folder`, as if it were a job environment."""
    return JobEnvironment(spec=SPEC, python=python, source=folder)


@pytest.fixture
def in_source(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the task's file as working folder, where a planner would run."""
    folder = Path(__file__).parent
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("task", ["in_the_file", "in_the_task"])
def test_metrics_that_only_the_tasks_file_knows_are_found(task: str, in_source: Path, tmp_path: Path) -> None:
    """In a process of its own, which has imported nothing of the user's before."""
    plain = run(f"own_metric.py@{task}", tmp_path / "plain")
    plan_log = plan(f"own_metric.py@{task}", tmp_path / "plan")
    pairs = [(name, 1) for name in read_eval_log(str(plan_log), header_only=True).eval.dataset.sample_ids or []]
    parts = [pairs[1:], pairs[:1]]
    logs = [cut_job(plain, part, job_name(number), tmp_path) for number, part in enumerate(parts)]

    report = merge(
        manifest(plan_log, parts), plan_log, logs, tmp_path / "m.eval", recompute=Recompute(own_environment(in_source))
    )

    assert report.error is None
    assert [str(difference) for difference in compare(plain, tmp_path / "m.eval").differences] == []


def test_a_tasks_file_that_no_longer_imports_costs_the_metrics_and_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is written all the same, with status error and what the import raised."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_metric.py").write_text((Path(__file__).parent / "own_metric.py").read_text())
    plain = run("own_metric.py@in_the_file", tmp_path / "plain")
    plan_log = plan("own_metric.py@in_the_file", tmp_path / "plan")
    pairs = [(name, 1) for name in range(4)]
    log = cut_job(plain, pairs, job_name(0), tmp_path)
    (tmp_path / "own_metric.py").write_text("@task\ndef in_the_file(): import a_package_that_is_gone\nraise OSError(7)")

    recompute = Recompute(own_environment(tmp_path))
    report = merge(manifest(plan_log, [pairs]), plan_log, [log], tmp_path / "m.eval", recompute=recompute)

    assert (report.status, report.samples, report.results) == ("error", 4, None)
    assert report.error is not None
    assert "task" in report.error
    assert len(read_eval_log(str(tmp_path / "m.eval")).samples or []) == 4


def test_what_the_tasks_file_wants_done_at_its_end_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends without taking apart what it has imported; a temporary folder of the user's must not stay for it."""
    monkeypatch.chdir(tmp_path)
    own = (Path(__file__).parent / "own_metric.py").read_text()
    (tmp_path / "own_metric.py").write_text(own)
    plain = run("own_metric.py@in_the_file", tmp_path / "plain")
    plan_log = plan("own_metric.py@in_the_file", tmp_path / "plan")
    pairs = [(name, 1) for name in range(4)]
    log = cut_job(plain, pairs, job_name(0), tmp_path)
    at_the_end = "import atexit, pathlib\natexit.register(pathlib.Path('said').write_text, 'good-bye')\n"
    (tmp_path / "own_metric.py").write_text(own + at_the_end)

    recompute = Recompute(own_environment(tmp_path))
    report = merge(manifest(plan_log, [pairs]), plan_log, [log], tmp_path / "m.eval", recompute=recompute)

    assert report.error is None
    assert (tmp_path / "said").read_text() == "good-bye"


def fake_python(folder: Path, script: str) -> Path:
    """An interpreter that does as the script says."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


@pytest.fixture
def nothing_to_merge(tmp_path: Path) -> tuple[EvalManifest, Path]:
    plan_log = plan(str(Path(__file__).parent / "own_metric.py@in_the_file"), tmp_path / "plan")
    return manifest(plan_log, [[(0, 1)]]), plan_log


def test_a_process_that_ends_is_an_error_that_quotes_it(
    nothing_to_merge: tuple[EvalManifest, Path], tmp_path: Path
) -> None:
    python = fake_python(tmp_path, "echo 'ImportError: no module named inspect_ai'; exit 3")
    with pytest.raises(RecomputeFailed, match=r"exit code 3: ImportError: no module named inspect_ai"):
        merge(*nothing_to_merge, [], tmp_path / "m.eval", recompute=Recompute(own_environment(tmp_path, python)))
    assert not (tmp_path / "m.eval").exists(), "there is no half log"


def test_a_process_that_answers_nothing_is_given_up_and_killed(
    nothing_to_merge: tuple[EvalManifest, Path], tmp_path: Path
) -> None:
    python = fake_python(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    recompute = Recompute(own_environment(tmp_path, python), patience=2)
    with pytest.raises(RecomputeFailed, match="no answer within"):
        merge(*nothing_to_merge, [], tmp_path / "m.eval", recompute=recompute)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_merge_that_fails_leaves_no_process(nothing_to_merge: tuple[EvalManifest, Path], tmp_path: Path) -> None:
    def job_logs() -> Iterator[Path]:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            pass
        raise ConnectionError("the bucket is gone")
        yield

    python = fake_python(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with pytest.raises(ConnectionError):
        merge(
            *nothing_to_merge, job_logs(), tmp_path / "m.eval", recompute=Recompute(own_environment(tmp_path, python))
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pid", "plan", "python"]


def waiting(folder: Path, python: Path, merges: int) -> Warm:
    return Warm(own_environment(folder, python), dict(os.environ), merges)


def pids(folder: Path, count: int) -> list[int]:
    """Of those that a fake interpreter has noted, when there are so many."""
    found: list[str] = []
    while len(found) < count:
        found = (folder / "pids").read_text().split() if (folder / "pids").exists() else []
    return [int(pid) for pid in found]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_waits_for_the_next_merge_and_none_for_more_than_there_are(tmp_path: Path) -> None:
    python = fake_python(tmp_path, f"echo $$ >> {tmp_path}/pids; exec sleep 600")
    environment = own_environment(tmp_path, python)
    with waiting(tmp_path, python, merges=2) as warm:
        assert warm.take(environment) is None, "it begins when it is told to"
        warm.start()
        warm.start()
        (first,) = pids(tmp_path, 1)
        assert warm.take(own_environment(tmp_path)) is None, "it is of no use to another environment"
        taken = warm.take(environment)
        assert taken is not None
        assert taken.process.pid == first
        _, second = pids(tmp_path, 2)
        taken.end()
        assert not is_there(first)
    assert not is_there(second)
    assert warm.take(environment) is None


def test_a_process_that_died_as_it_waited_costs_no_merge(tmp_path: Path) -> None:
    with waiting(tmp_path, fake_python(tmp_path, "exit 1"), merges=1) as warm:
        warm.start()
        assert warm._next is not None
        warm._next.process.wait()
        assert warm.take(own_environment(tmp_path, tmp_path / "python")) is None


def test_a_next_process_that_cannot_be_started_costs_no_merge_the_one_that_waits(tmp_path: Path) -> None:
    python = fake_python(tmp_path, f"echo $$ >> {tmp_path}/pids; exec sleep 600")
    with waiting(tmp_path, python, merges=2) as warm:
        warm.start()
        pids(tmp_path, 1)  # it has read its file
        python.unlink()
        taken = warm.take(own_environment(tmp_path, python))
        assert taken is not None
        taken.end()
        assert warm.waiting is None


@pytest.mark.parametrize(
    ("given", "seen"),
    [({}, "1 131072"), ({"MALLOC_ARENA_MAX": "4"}, "4 131072"), ({"MALLOC_MMAP_THRESHOLD_": "65536"}, "1 65536")],
)
def test_a_process_gives_memory_back_unless_its_environment_says_otherwise(
    given: dict[str, str], seen: str, tmp_path: Path
) -> None:
    python = fake_python(tmp_path, f'echo "$MALLOC_ARENA_MAX $MALLOC_MMAP_THRESHOLD_" > {tmp_path}/seen')
    child = Child(own_environment(tmp_path, python), given)
    child.process.wait(60)
    child.end()
    assert (tmp_path / "seen").read_text().strip() == seen


def test_a_process_whose_controller_is_killed_ends(tmp_path: Path) -> None:
    """It has a pipe as its standard input, of which nobody else has the other end."""
    child = Child(own_environment(tmp_path), dict(os.environ))
    assert child.process.stdin is not None
    child.process.stdin.close()
    assert child.process.wait(60) == 1
    child.process.stdin = None
    child.end()


def test_metrics_are_computed_by_a_process_that_waited(in_source: Path, tmp_path: Path) -> None:
    plain = run("own_metric.py@in_the_task", tmp_path / "plain")
    plan_log = plan("own_metric.py@in_the_task", tmp_path / "plan")
    pairs = [(name, 1) for name in read_eval_log(str(plan_log), header_only=True).eval.dataset.sample_ids or []]
    log = cut_job(plain, pairs, job_name(0), tmp_path)
    environment = own_environment(in_source)
    with Warm(environment, dict(os.environ), merges=1) as warm:
        warm.start()
        recompute = Recompute(environment, warm=warm)
        report = merge(manifest(plan_log, [pairs]), plan_log, [log], tmp_path / "m.eval", recompute=recompute)
    assert report.error is None
    assert [str(difference) for difference in compare(plain, tmp_path / "m.eval").differences] == []


def test_metrics_are_given_the_metadata_of_the_dataset(tmp_path: Path) -> None:
    """A solver may change a sample's metadata; in a plain run no metric sees that. Long texts come whole."""

    def make() -> Task:
        samples = [
            sample.model_copy(update={"metadata": {"kind": f"{LONG}{sample.id}", "n": 1}}) for sample in words(3)
        ]
        return Task(dataset=samples, solver=[renames_kind(), generate()], scorer=numbers())

    log = run(make(), tmp_path)
    assert {sample.metadata["kind"] for sample in read_eval_log(str(log)).samples or []} == {"epoch 1"}
    found = summarise(log, {("s0", 1), ("s1", 1), ("s2", 1)})["samples"]
    assert {record["id"]: record["metadata"] for record in found} == {
        name: {"kind": LONG + name, "n": 1} for name in ("s0", "s1", "s2")
    }


TASKS = ["epochal", "numbered", "failing", "growing"]


def test_jobs_of_warm_runners_merge_to_the_log_of_plain_inspect(environment: JobEnvironment, tmp_path: Path) -> None:
    """The whole way in a real job environment: planned, run in runners, merged; beside a plain run of the same request."""
    request = kit_request(*TASKS, eval_config={"fail_on_error": False})
    plain = run_plain(request, environment, str(tmp_path / "plain"), tmp_path / "whole", say=lambda line: None)
    plans = plan_tasks(request, environment, tmp_path / "plans")
    manifests = [make_manifest(one, request, environment.spec, slots=2) for one in plans]

    async def jobs(manifest: EvalManifest, pool: RunnerPool) -> list[Path]:
        runner = await pool.spawn()
        folder = tmp_path / "jobs" / manifest.eval_id
        return [(await runner.run(manifest, job, folder)).log for job in reversed(manifest.jobs)]

    async def work() -> list[list[Path]]:
        async with RunnerPool(environment, tmp_path / "runners", dict(os.environ)) as pool:
            return [await jobs(manifest, pool) for manifest in manifests]

    for name, one, manifest_, plan_, logs in zip(TASKS, plain, manifests, plans, asyncio.run(work()), strict=True):
        out = tmp_path / "merged" / f"{name}.eval"
        report = merge(manifest_, plan_.log, logs, out, recompute=Recompute(environment))
        found = [str(difference) for difference in compare(Path(one.log), out).differences]
        assert found == [], name
        assert report.unusable == (), name
