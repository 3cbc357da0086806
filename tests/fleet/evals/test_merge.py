"""A merged log is the log that a single run would have written: held value by value, on real runs."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspect_ai import Task, eval_retry
from inspect_ai.log import read_eval_log, read_eval_log_samples
from inspect_ai.scorer import match

from fleet.evals.job_log import END_BYTES, flaw_at_end
from fleet.evals.merge import merge
from tests.fleet.evals import merge_tasks as tasks
from tests.fleet.evals.merge_kit import (
    ASKED,
    EVAL_ID,
    InProcess,
    Pair,
    cut_job,
    finish_job,
    job_name,
    manifest,
    plan,
    run,
    run_job,
)
from tests.parity.compare import compare

ROLES = {"model_roles": {"critic": "parrot/critic"}}
TRACEBACK = {"names the lines of the process that computed": ("header.error.traceback", "header.error.traceback_ansi")}


def options_of(make: Callable[[], Task]) -> dict[str, Any]:
    return {**(ROLES if make is tasks.with_roles else {}), **({"retry_on_error": 1} if make is tasks.retried else {})}


def pairs_of(plan_log: Path) -> list[Pair]:
    """All samples and epochs, in plan order."""
    spec = read_eval_log(str(plan_log), header_only=True).eval
    return [
        (name, epoch) for epoch in range(1, (spec.config.epochs or 1) + 1) for name in spec.dataset.sample_ids or []
    ]


def differences(plain: Path, merged: Path, **options: Any) -> list[str]:
    return [str(difference) for difference in compare(plain, merged, **options).differences]


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
    """A plain log and the plan log of a task whose metrics depend on order and whose scores hold NaN."""
    folder = tmp_path_factory.mktemp("done")

    def make() -> Task:
        return Task(
            dataset=tasks.words(6), solver=tasks.raises_at(4), scorer=[tasks.numbers(), tasks.measures()], epochs=2
        )

    options = {"fail_on_error": False}
    return run(make(), folder / "plain", **options), plan(make(), folder / "plan", **options)


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


def cut(done: tuple[Path, Path], folder: Path, size: int = 4) -> tuple[Path, list[list[Pair]], list[Path]]:
    """The run in `done`, as jobs of `size` samples."""
    plain, plan_log = done
    pairs = pairs_of(plan_log)
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return plan_log, parts, [cut_job(plain, part, job_name(number), folder) for number, part in enumerate(parts)]


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


def samples_of(log: Path) -> Sequence[Any]:
    return read_eval_log(str(log)).samples or []


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda log: log.write_bytes(b""), "it is empty"),
    "truncated": (lambda log: log.write_bytes(log.read_bytes()[:-30]), "truncated"),
    "something else": (lambda log: log.write_text("<Error>NoSuchKey</Error>"), "truncated or no zip"),
    "still running": (lambda log: without(log, "header.json"), "never finished"),
    "no result of ours": (lambda log: without(log, "fleet.json"), "never finished"),
    "cancelled": (lambda log: edit(log, "header.json", ("success", "cancelled")), "its status is cancelled"),
    "another eval's": (lambda log: edit(log, "fleet.json", (EVAL_ID, "other-1")), "of eval other-1"),
    "another version's": (lambda log: edit(log, "fleet.json", ('"version":1', '"version":9')), "version is 9"),
    "not JSON": (lambda log: edit(log, "fleet.json", ("{", "")), "not JSON"),
    "a sample less": (lambda log: without(log, "samples/s5_epoch_1.json"), "it has no samples/s5_epoch_1.json"),
    "a record less": (lambda log: edit(log, "fleet.json", ('"id":"s5"', '"id":"s9"')), "it lacks 1 of its 4 samples"),
    "a summary less": (lambda log: edit(log, "summaries.json", ('"id":"s5"', '"id":"s9"')), "no summary of sample s5"),
}


def without(log: Path, name: str) -> None:
    rewrite(log, lambda member, content: None if member == name else content)


def edit(log: Path, name: str, change: tuple[str, str]) -> None:
    old, new = (part.encode() for part in change)
    rewrite(log, lambda member, content: content.replace(old, new, 1) if member == name else content)


def rewrite(log: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    with zipfile.ZipFile(log) as old:
        members = {name: change(name, old.read(name)) for name in old.namelist()}
    with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            if content is not None:
                new.writestr(name, content)


@pytest.mark.parametrize("what", BAD)
@pytest.mark.fault("result-damaged")
def test_a_result_that_is_no_good_is_reported_and_nothing_of_it_is_merged(
    what: str, done: tuple[Path, Path], tmp_path: Path
) -> None:
    spoil, why = BAD[what]
    plan_log, parts, logs = cut(done, tmp_path)
    spoil(logs[1])

    report = merge(manifest(plan_log, parts), plan_log, logs, tmp_path / "merged.eval", recompute=InProcess())

    assert [unusable.job for unusable in report.unusable] == [job_name(1)]
    assert why in report.unusable[0].why
    assert [(one.job, one.samples) for one in report.absent] == [(job_name(1), 4)]
    assert (report.status, report.samples, report.planned) == ("error", 8, 12)
    assert report.error is not None
    assert job_name(1) in report.error
    assert {(one.id, one.epoch) for one in samples_of(tmp_path / "merged.eval")} == {*parts[0], *parts[2]}


@pytest.mark.parametrize("what", [None, *BAD])
@pytest.mark.fault("result-damaged")
def test_a_result_that_was_cut_short_or_never_finished_shows_it_at_its_end(
    what: str | None, done: tuple[Path, Path], tmp_path: Path
) -> None:
    """The cheap look while the fleet is there. The rest is the merge's to find: it takes a whole one."""
    log = cut(done, tmp_path)[2][1]
    spoil, why = BAD[what] if what else (lambda log: None, "")
    spoil(log)
    found = flaw_at_end(log.read_bytes()[-END_BYTES:], log.stat().st_size)
    if what in ("empty", "truncated", "something else", "still running", "no result of ours"):
        assert why in found
    else:
        assert found == ""


@pytest.mark.parametrize("room", [100, 1000, 10**6])
@pytest.mark.fault("result-damaged")
def test_a_result_with_more_samples_than_its_end_can_name_passes(room: int, tmp_path: Path) -> None:
    log = tmp_path / "log.eval"
    with zipfile.ZipFile(log, "w") as archive:
        for name in [*(f"samples/{number}_epoch_1.json" for number in range(100)), "header.json", "fleet.json"]:
            archive.writestr(name, "{}")
    whole = log.read_bytes()
    assert flaw_at_end(whole[-room:], len(whole)) == ""
    assert "truncated" in flaw_at_end(whole[-room:], len(whole) + 1)


@pytest.mark.parametrize("limit", ["ZIP64_LIMIT", "ZIP_FILECOUNT_LIMIT"])
@pytest.mark.fault("result-damaged")
def test_a_very_large_result_passes(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 2 GiB, or of over 65,535 members: a second record stands between the directory and the end."""
    monkeypatch.setattr(zipfile, limit, 2)
    log = tmp_path / "log.eval"
    with zipfile.ZipFile(log, "w") as archive:
        for name in ("header.json", "fleet.json", "summaries.json"):
            archive.writestr(name, "{}")
    whole = log.read_bytes()
    assert flaw_at_end(whole[-END_BYTES:], len(whole)) == ""


@given(length=st.integers(0, 20_000))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.fault("result-damaged")
def test_no_beginning_of_a_result_passes_for_one(
    done: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    """However a write was cut off: the rest counts as absent, never as a shorter result."""
    folder = tmp_path_factory.mktemp("cut")
    plan_log, parts, logs = cut(done, folder, size=12)
    whole = logs[0].read_bytes()
    logs[0].write_bytes(part := whole[: min(length, len(whole) - 1)])
    assert flaw_at_end(part[-END_BYTES:], len(part))
    report = merge(manifest(plan_log, parts), plan_log, logs, folder / "merged.eval", recompute=InProcess())
    assert (len(report.unusable), report.samples, report.status, report.results) == (1, 0, "error", None)
    shutil.rmtree(folder)


@pytest.mark.fault("result-damaged")
def test_a_good_result_takes_the_place_of_a_bad_one(done: tuple[Path, Path], tmp_path: Path) -> None:
    """As when a job was run again after its result had been set aside."""
    plan_log, parts, logs = cut(done, tmp_path)
    bad = tmp_path / "bad" / logs[1].name
    bad.parent.mkdir()
    bad.write_bytes(b"")
    report = merge(manifest(plan_log, parts), plan_log, [bad, *logs, bad], tmp_path / "m.eval", recompute=InProcess())
    assert (report.unusable, report.absent, report.status) == ((), (), "success")


def test_a_log_of_no_job_of_the_eval_is_not_merged(done: tuple[Path, Path], tmp_path: Path) -> None:
    plan_log, parts, logs = cut(done, tmp_path)
    stray = logs[0].rename(tmp_path / "000009-ffffffff.eval")
    report = merge(manifest(plan_log, parts), plan_log, [stray], tmp_path / "m.eval", recompute=InProcess())
    assert [str(one) for one in report.unusable] == [
        f"the result of job 000009-ffffffff can't be used: eval {EVAL_ID} has no such job"
    ]
    assert report.samples == 0


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
