"""When what there was of a job's log is kept. What is kept of it: `test_partial.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.partial import MOST_BYTES
from bootstrap.runners import RunnerDied
from tests.archives import zip_of
from tests.bootstrap.wide_world import BUSY, Wide, record_of
from tests.bootstrap.world import EVAL, LAYOUT, Script

CLOSED_LOG = zip_of({"header.json": "{}"})


@pytest.mark.fault("partial-log")
def test_what_there_was_of_a_log_is_kept_after_the_job_went_back(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.writes = CLOSED_LOG
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.work(stop_at=5)
    (key,) = world.partial()
    assert key.startswith(f"{LAYOUT.eval(EVAL)}/partial/{world.jobs[0]}/")
    assert key.endswith("-i-1.eval")
    assert world.objects.held[key] == world.writes
    assert world.journal.index("done") < world.journal.index(f"put {key}"), "nobody waits for it"
    assert (world.results(), world.waiting()) == ([], world.jobs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("partial-log")
def test_a_runner_that_is_told_to_end_has_some_seconds_to_close_its_log(tmp_path: Path) -> None:
    """Inspect writes the samples that are done as it unwinds; one that doesn't is not waited for much longer."""
    world = Wide(tmp_path, 2)
    world.writes = b"PK begun"
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)

    def close() -> None:
        (first, *_) = sorted(tmp_path.glob("*/log/a.eval"))
        first.write_bytes(CLOSED_LOG)

    world.at(8, close)
    world.work(stop_at=5)
    assert {world.objects.held[key] for key in world.partial()} == {b"PK begun", CLOSED_LOG}
    assert 13 <= world.time.now <= 17


@pytest.mark.fault("partial-log")
def test_a_log_of_a_runner_that_died_is_kept_too_and_its_failure_counts(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.writes = b"PK begun"
    death = RunnerDied(how="killed", log="/nowhere", said="the last words")
    world.scripts[world.jobs[0]] = Script(crashes=[death])
    world.work()
    assert record_of(world).log == "the last words"
    assert record_of(world).kind == "RunnerDied"
    assert len(world.partial()) == 1
    assert world.results() == world.jobs


@pytest.mark.fault("partial-log")
def test_no_more_is_kept_of_a_log_than_is_bearable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bootstrap.partial.MOST_BYTES", 4)
    assert MOST_BYTES > 4
    world = Wide(tmp_path, 1)
    world.writes = CLOSED_LOG
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.work(stop_at=5)
    assert world.partial() == []
    assert any("is not kept" in line for line in world.said)


@pytest.mark.fault("partial-log")
def test_a_partial_log_that_cannot_be_read_costs_nothing_else(tmp_path: Path) -> None:
    world = Wide(tmp_path / "jobs", 1)
    world.writes = CLOSED_LOG
    world.objects.refuse["put"] = OSError(5, "Input/output error")  # type: ignore[assignment]
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    assert world.work(stop_at=5) == ["stopped"]
    assert world.waiting() == world.jobs
    assert any("is not kept: [Errno 5]" in line for line in world.said)


@pytest.mark.fault("partial-log")
def test_a_bucket_that_refuses_a_partial_log_costs_nothing_else(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.writes = CLOSED_LOG
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.objects.refuse["put"] = BUSY
    assert world.work(stop_at=5) == ["stopped"]
    assert world.waiting() == world.jobs
