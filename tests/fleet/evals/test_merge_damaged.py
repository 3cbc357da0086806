"""A result that is no good is told from a good one, by its end or by the merge, and nothing of it is merged."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.evals.job_log import END_BYTES, flaw_at_end
from fleet.evals.merge import merge
from tests.archives import zip_of
from tests.fleet.evals.cut_runs import cut, edit, finished, samples_of, without
from tests.fleet.evals.merge_kit import EVAL_ID, InProcess, job_name, manifest

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


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return finished(tmp_path_factory.mktemp("done"))


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
def test_a_result_with_more_samples_than_its_end_can_name_passes(room: int) -> None:
    samples = (f"samples/{number}_epoch_1.json" for number in range(100))
    whole = zip_of(dict.fromkeys((*samples, "header.json", "fleet.json"), "{}"))
    assert flaw_at_end(whole[-room:], len(whole)) == ""
    assert "truncated" in flaw_at_end(whole[-room:], len(whole) + 1)


@pytest.mark.parametrize("limit", ["ZIP64_LIMIT", "ZIP_FILECOUNT_LIMIT"])
@pytest.mark.fault("result-damaged")
def test_a_very_large_result_passes(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 2 GiB, or of over 65,535 members: a second record stands between the directory and the end."""
    monkeypatch.setattr(zipfile, limit, 2)
    whole = zip_of(dict.fromkeys(("header.json", "fleet.json", "summaries.json"), "{}"))
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
