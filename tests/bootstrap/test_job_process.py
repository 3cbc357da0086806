"""What a process of the job environment sees, whoever starts it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from bootstrap.plain import run_plain
from bootstrap.planner import plan_tasks
from bootstrap.runners import RunnerPool
from fleet.evals.plan import make_manifest
from tests.job_environment import kit_request

OPTIONS = {
    "INSPECT_EVAL_MODEL": "kit/another",
    "INSPECT_EVAL_MODEL_ARGS": "delay=3",
    "INSPECT_EVAL_MODEL_BASE_URL": "http://another.example",
    "INSPECT_EVAL_LIMIT": "1",
    "INSPECT_LOG_DIR": "elsewhere",
    "INSPECT_LOG_FORMAT": "json",
    "INSPECT_LOG_LEVEL_TRANSCRIPT": "debug",
    "INSPECT_DEBUG_ERRORS": "true",
}
"""Variables by which a person sets options of every eval of theirs."""

KEPT = {
    "INSPECT_EVAL_NOTIFICATION": "an-address",
    "INSPECT_LOG_LEVEL": "warning",
    "INSPECT_SANDBOX_MAX_READ_FILE_SIZE": "1000",
    "KIT_KEY": "a-key",
}

SEEN = """
import os
from inspect_ai import Task, task
from inspect_ai.dataset import Sample

@task
def seen():
    names = sorted(name for name in os.environ if name.startswith(("INSPECT_", "KIT_")))
    return Task([Sample(input=" ".join(names), id=name) for name in names])
"""


@pytest.fixture
def seen(environment: JobEnvironment) -> Iterator[str]:
    """A task whose samples are named by variables of the process that builds it."""
    assert environment.source is not None
    file = environment.source / "seen.py"
    file.write_text(SEEN)
    yield "seen.py@seen"
    file.unlink()


def test_options_that_a_person_keeps_in_variables_count_nowhere(environment: JobEnvironment) -> None:
    """An instance doesn't have them: there the same request would be another eval."""
    found = job_process.variables(environment, {**OPTIONS, **KEPT, "PATH": "/bin"})
    assert not OPTIONS.keys() & found.keys()
    assert found.items() >= KEPT.items()


def test_the_tail_of_a_log_begins_with_a_whole_word(tmp_path: Path) -> None:
    """Whoever hides secrets in it looks for whole ones."""
    log = tmp_path / "log"
    log.write_text("first\nsecond\n\nthird\n  fourth \n")
    assert job_process.tail(log) == "second | third | fourth"
    log.write_text(f"the key sk-very-{'y' * 500} is wrong: {'z ' * 60}\n")
    assert job_process.tail(log).startswith("is wrong: z z")
    log.write_text("sk-" + "y" * 700)
    assert job_process.tail(log) == ""
    assert job_process.tail(tmp_path / "none") == ""


def test_planner_runners_and_plain_inspect_see_the_same(environment: JobEnvironment, seen: str, tmp_path: Path) -> None:
    request = kit_request(seen)
    env = {name: value for name, value in os.environ.items() if not name.startswith("INSPECT_")} | OPTIONS | KEPT
    [plan] = plan_tasks(request, environment, tmp_path / "plan", env=env)
    assert plan.sample_ids == sorted([*KEPT, "INSPECT_DISPLAY"])
    assert read_eval_log(str(plan.log)).eval.model_args == {}

    [plain] = run_plain(request, environment, str(tmp_path / "logs"), tmp_path / "work", env=env, say=lambda _: None)
    assert plain.status == "success"
    assert read_eval_log(plain.log).eval.dataset.sample_ids == plan.sample_ids

    manifest = make_manifest(plan, request, environment.spec, slots=1)

    async def run() -> None:
        async with RunnerPool(environment, tmp_path / "runners", env) as pool:
            runner = await pool.spawn()
            for job in manifest.jobs:  # a sample names all of them: with one more, it would be another
                await runner.run(manifest, job, tmp_path / "jobs")

    asyncio.run(run())


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_what_a_link_points_to_is_given_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "roots").touch()
    (tmp_path / "link").symlink_to(tmp_path / "roots")
    job_process.give(tmp_path / "link", "nobody")
    assert (tmp_path / "roots").stat().st_uid == 0


def test_what_a_runner_said_of_one_job_is_its_end_from_that_job_on(tmp_path: Path) -> None:
    log = tmp_path / "runner.log"
    assert job_process.said_since(log, job_process.size_of(log)) == ""
    log.write_text("of an earlier job\n")
    before = job_process.size_of(log)
    assert job_process.said_since(log, before) == ""
    with log.open("a") as file:
        file.write("Traceback\nboom\n")
    assert job_process.said_since(log, before) == "Traceback\nboom"
    with log.open("ab") as file:
        file.write(b"\xff" + b"x" * 2 * job_process.SAID_BYTES)
    assert job_process.said_since(log, before) == "x" * job_process.SAID_BYTES
