"""A merged log is the log that a single run would have written: held value by value, on real runs."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspect_ai import Task, eval_retry
from inspect_ai.log import read_eval_log, read_eval_log_samples
from inspect_ai.scorer import match

from fleet.evals.merge import merge
from tests.fleet.evals import merge_tasks as tasks
from tests.fleet.evals.cut_runs import cut, differences, edit, finished, pairs_of, samples_of
from tests.fleet.evals.merge_kit import ASKED, InProcess, cut_job, finish_job, job_name, manifest, plan, run, run_job

ROLES = {"model_roles": {"critic": "parrot/critic"}}
TRACEBACK = {"names the lines of the process that computed": ("header.error.traceback", "header.error.traceback_ansi")}


def options_of(make: Callable[[], Task]) -> dict[str, Any]:
    return {**(ROLES if make is tasks.with_roles else {}), **({"retry_on_error": 1} if make is tasks.retried else {})}


def taken(log: Path) -> dict[str, Any]:
    """How many epochs of each sample there are that took a time without an error: other runs take other times."""
    samples = [
        one
        for one in read_eval_log_samples(str(log), all_samples_required=False)
        if one.error is None and one.total_time
    ]
    return {str(one.id): [ANY] * sum(other.id == one.id for other in samples) for one in samples}


@pytest.mark.parametrize("make", tasks.SPLITTABLE, ids=lambda make: make.__name__)
def test_a_merged_log_equals_a_plain_one(make: Callable[[], Task], tmp_path: Path) -> None:
    """Jobs of uneven size, arriving last first, each a run of its own."""
    plain = run(make(), tmp_path / "plain", **options_of(make))
    plan_log = plan(make(), tmp_path / "plan", **options_of(make))
    pairs = pairs_of(plan_log)
    parts = [pairs[0::3], pairs[1::3], pairs[2::3]]
    logs = [run_job(make(), part, job_name(number), tmp_path, **options_of(make)) for number, part in enumerate(parts)]

    report = merge(manifest(plan_log, parts), plan_log, reversed(logs), tmp_path / "merged.eval", recompute=InProcess())

    unequal = TRACEBACK if make is tasks.broken_metric else None
    assert differences(plain, tmp_path / "merged.eval", unequal=unequal) == []
    assert (report.samples, report.planned, report.absent, report.unusable) == (len(pairs), len(pairs), (), ())
    assert report.seconds == taken(plain)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return finished(tmp_path_factory.mktemp("done"))


@st.composite
def partitions(draw: st.DrawFn, size: int) -> list[list[int]]:
    """The numbers below `size`, in jobs of any size and any order inside them."""
    order = draw(st.permutations(range(size)))
    cuts = sorted(draw(st.sets(st.integers(1, size - 1))))
    return [list(order[start:end]) for start, end in zip([0, *cuts], [*cuts, size], strict=True)]


@given(data=st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_how_samples_were_parted_and_in_what_order_they_came_leaves_no_trace(
    done: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any partition of one run's samples into job logs, in any order of arrival, merges to that run's log."""
    plain, plan_log = done
    folder = tmp_path_factory.mktemp("parts")
    pairs = pairs_of(plan_log)
    parts = [[pairs[number] for number in part] for part in data.draw(partitions(len(pairs)))]
    logs = [cut_job(plain, part, job_name(number), folder) for number, part in enumerate(parts)]
    arriving = data.draw(st.permutations(logs))

    merge(manifest(plan_log, parts), plan_log, arriving, folder / "merged.eval", recompute=InProcess())

    assert differences(plain, folder / "merged.eval") == []
    names = zipfile.ZipFile(folder / "merged.eval").namelist()
    assert names[1:13] == [f"samples/{name}_epoch_{epoch}.json" for name, epoch in pairs]
    shutil.rmtree(folder)


def test_each_job_log_may_be_deleted_once_the_next_is_asked_for(done: tuple[Path, Path], tmp_path: Path) -> None:
    plan_log, parts, logs = cut(done, tmp_path)
    told: list[int] = []

    def one_at_a_time() -> Iterator[Path]:
        for log in logs:
            yield log
            log.unlink()

    out = tmp_path / "folder" / "merged.eval"
    merge(manifest(plan_log, parts), plan_log, one_at_a_time(), out, recompute=InProcess(), progress=told.append)

    assert told == [4, 8, 12]
    assert differences(done[0], out) == []
    assert [path.name for path in out.parent.iterdir()] == ["merged.eval"], "nothing of the merge is left behind"


@pytest.mark.fault("duplicate-delivery")
def test_a_sample_that_two_jobs_hold_is_merged_once(done: tuple[Path, Path], tmp_path: Path) -> None:
    """The first wins. A job that brings a log twice counts once, its usage too."""
    plain, plan_log = done
    pairs = pairs_of(plan_log)
    parts = [pairs, pairs[3:5]]
    logs = [cut_job(plain, part, job_name(number), tmp_path) for number, part in enumerate(parts)]

    report = merge(
        manifest(plan_log, parts), plan_log, [logs[0], logs[0], logs[1]], tmp_path / "m.eval", recompute=InProcess()
    )

    assert (report.samples, report.duplicates, report.status) == (12, 14, "success")
    assert [one.uuid for one in samples_of(tmp_path / "m.eval")] == [one.uuid for one in samples_of(plain)]
    assert differences(plain, tmp_path / "m.eval") == []


def test_cancelled_samples_are_left_out(done: tuple[Path, Path], tmp_path: Path) -> None:
    """They are no outcome: plain Inspect would run them again."""
    plain, plan_log = done
    pairs = pairs_of(plan_log)
    log = cut_job(plain, pairs, job_name(0), tmp_path)
    edit(log, "fleet.json", ("RuntimeError(", "CancelledError("))

    report = merge(manifest(plan_log, [pairs]), plan_log, [log], tmp_path / "m.eval", recompute=InProcess())

    assert (report.cancelled, report.samples, report.status) == (1, 11, "error")
    assert [(one.samples, one.why) for one in report.absent] == [(1, "cancelled while it ran")]
    assert len(samples_of(tmp_path / "m.eval")) == 11


RULES: list[tuple[dict[str, Any], str, bool]] = [
    ({}, "error", True),
    ({"fail_on_error": True}, "error", True),
    ({"fail_on_error": False}, "success", False),
    ({"fail_on_error": 0.5}, "success", False),
    ({"fail_on_error": 0.3}, "error", True),
    ({"fail_on_error": 3}, "success", False),
    ({"fail_on_error": 2}, "error", True),
    ({"fail_on_error": True, "continue_on_fail": True}, "error", False),
    ({"fail_on_error": 3, "continue_on_fail": True}, "success", False),
]


@pytest.mark.parametrize(("rule", "status", "says_why"), RULES, ids=lambda value: str(value))
@pytest.mark.fault("sample-fails")
def test_the_users_rule_for_errors_decides_the_status(
    rule: dict[str, Any], status: str, says_why: bool, tmp_path: Path
) -> None:
    """As in a plain run of the same task with two of six samples failing; only that here all samples have run."""

    def make() -> Task:
        return Task(dataset=tasks.words(6), solver=tasks.raises_at(1, 4), scorer=match())

    plain = read_eval_log(str(run(make(), tmp_path / "plain", **rule)))
    plan_log = plan(make(), tmp_path / "plan", **rule)
    pairs = pairs_of(plan_log)
    logs = [run_job(make(), part, job_name(number), tmp_path) for number, part in enumerate([pairs[:3], pairs[3:]])]

    report = merge(
        manifest(plan_log, [pairs[:3], pairs[3:]]), plan_log, logs, tmp_path / "m.eval", recompute=InProcess()
    )
    merged = read_eval_log(str(tmp_path / "m.eval"))

    assert (report.status, merged.status, plain.status) == (status, status, status)
    assert (merged.error is not None, plain.error is not None) == (says_why, says_why)
    if plain.error is not None:
        assert merged.error is not None
        assert merged.error.message == 'RuntimeError("sample 1 doesn\'t work")', "the first, in plan order"
    assert merged.eval.config.model_dump() == plain.eval.config.model_dump()
    assert (report.sample_errors, report.samples) == (2, 6)


@pytest.mark.fault("samples-missing")
def test_plain_eval_retry_finishes_exactly_what_is_missing(tmp_path: Path) -> None:
    """A partial merge is a log that Inspect itself completes: finished samples are kept, the others run."""
    task = f"{Path(__file__).parent / 'retry_task.py'}@six_words"
    plan_log = plan(task, tmp_path / "plan")
    pairs = pairs_of(plan_log)
    parts = [pairs[:4], pairs[4:9], pairs[9:]]
    plain = run(task, tmp_path / "plain")
    logs = [cut_job(plain, parts[number], job_name(number), tmp_path) for number in (0, 2)]
    out = tmp_path / "merged.eval"
    report = merge(
        manifest(plan_log, parts), plan_log, logs, out, recompute=InProcess(), missing={job_name(1): "no instance left"}
    )

    header = read_eval_log(str(out), header_only=True)
    assert (header.status, report.samples) == ("error", 7)
    assert header.results is not None
    assert (header.results.total_samples, header.results.completed_samples) == (12, 7)
    assert header.error is not None
    assert header.error.message == (
        f"5 of 12 samples are missing (inspect eval-retry runs them): job {job_name(1)} (5 samples): no instance left"
    )

    ASKED.clear()
    retried = eval_retry(str(out), log_dir=str(tmp_path / "retried"), display="none")[0]
    assert sorted(ASKED) == sorted(f"w{str(name).removeprefix('s')}" for name, _ in parts[1])
    assert (retried.status, len(retried.samples or [])) == ("success", 12)
    assert differences(plain, Path(retried.location)) == []


@pytest.mark.fault("samples-missing")
def test_a_merge_of_nothing_is_a_log_that_says_so(done: tuple[Path, Path], tmp_path: Path) -> None:
    plan_log = done[1]
    parts = [pairs_of(plan_log)]
    report = merge(manifest(plan_log, parts), plan_log, [], tmp_path / "m.eval", recompute=InProcess())
    log = read_eval_log(str(tmp_path / "m.eval"))
    assert (log.status, log.samples, log.results, report.absent[0].why) == ("error", [], None, "it has no result")


@pytest.mark.parametrize("make", [tasks.growing, tasks.stopping], ids=lambda make: make.__name__)
def test_a_task_that_ran_in_one_piece_keeps_its_own_results(make: Callable[[], Task], tmp_path: Path) -> None:
    """A whole job: its samples are copied, and what it alone knows (how many it planned, what it stopped) is kept."""
    plain = run(make(), tmp_path / "plain")
    plan_log = plan(make(), tmp_path / "plan")
    log = finish_job(run(make(), tmp_path / "run"), job_name(0), tmp_path / f"{job_name(0)}.eval")

    report = merge(manifest(plan_log, [[]], whole=True), plan_log, [log], tmp_path / "m.eval", recompute=InProcess())

    assert differences(plain, tmp_path / "m.eval") == []
    assert report.status == "success"
    assert report.samples == len(samples_of(plain))


def test_a_task_in_one_piece_without_a_result_is_absent(tmp_path: Path) -> None:
    plan_log = plan(tasks.stopping(), tmp_path / "plan")
    report = merge(manifest(plan_log, [[]], whole=True), plan_log, [], tmp_path / "m.eval", recompute=InProcess())
    assert (report.status, report.absent[0].samples) == ("error", 5)


def test_the_incremental_reader_finds_every_sample(done: tuple[Path, Path], tmp_path: Path) -> None:
    """Readers that ask for one sample after another, as `inspect view` does."""
    plan_log, parts, logs = cut(done, tmp_path)
    merge(manifest(plan_log, parts), plan_log, logs, tmp_path / "merged.eval", recompute=InProcess())
    found = [(one.id, one.epoch) for one in read_eval_log_samples(str(tmp_path / "merged.eval"))]
    assert sorted(found) == sorted(pairs_of(plan_log))
