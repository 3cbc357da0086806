"""Attempts that fail since their host lacks memory or disk: they cost the job no failure, and the host its intake."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bootstrap.runners import JobCrashed, RunnerDied
from fleet.evals.attempts import MOST_FAILURES, POISON, POISON_DEATHS, RATE_LIMITED
from fleet.evals.documents import JobFailure
from tests.bootstrap.wide_world import BUSY, Wide, taken
from tests.bootstrap.world import EVAL, LAYOUT, Script

FULL = "1.0 GiB of 100.0 GiB free in /d"


def crash(kind: str = "OSError") -> JobCrashed:
    return JobCrashed(kind=kind, why="boom")


def death(*, killed: bool) -> RunnerDied:
    return RunnerDied(how="killed", log="/nowhere", killed=killed)


def well_later(world: Wide, *seconds: float) -> None:
    """As the guard says it, now and then."""
    for at in seconds:
        world.at(at, lambda: world.workers[0].resume())


def records(world: Wide) -> dict[str, JobFailure]:
    folder = f"{LAYOUT.failures(EVAL)}{world.jobs[0]}/"
    held = world.objects.held
    return {key.removeprefix(folder): JobFailure.read(held[key]) for key in held if key.startswith(folder)}


def uncounted(world: Wide) -> list[JobFailure]:
    return [record for name, record in records(world).items() if name.startswith("uncounted-")]


@pytest.mark.fault("host-at-fault")
@pytest.mark.parametrize("kind", ["OSError", "PrerequisiteError"])
def test_a_job_that_fails_on_a_full_host_costs_no_failure(tmp_path: Path, kind: str) -> None:
    """Also of a kind that is never retried: an image that could not be built for want of room is one."""
    world = Wide(tmp_path, 1)
    world.ill = FULL
    world.scripts[world.jobs[0]] = Script(crashes=[crash(kind)])
    world.work(stop_at=5)
    assert [(message.failures, message.deaths) for message in world.messages()] == [(0, 1)]
    (record,) = uncounted(world)
    assert (record.kind, record.final, record.why) == (kind, False, f"boom (not counted: this host is unfit: {FULL})")
    assert len(records(world)) == 1
    assert "job_failed" not in world.queues.kinds()


@pytest.mark.fault("host-at-fault")
def test_a_starving_job_counts_as_a_death_although_its_record_is_refused(tmp_path: Path) -> None:
    """And the host takes no more all the same."""
    world = Wide(tmp_path, 1)
    world.ill = FULL
    world.scripts[world.jobs[0]] = Script(crashes=[crash()])
    world.objects.refuse["put"] = BUSY
    world.work(stop_at=5)
    assert [(message.failures, message.deaths) for message in world.messages()] == [(0, 1)]
    assert world.workers[0].held
    assert any("isn't recorded" in line for line in world.said)


@pytest.mark.fault("host-at-fault")
def test_such_a_host_takes_no_more_jobs_until_it_is_well_and_fewer_then(tmp_path: Path) -> None:
    """One failure is enough, and a burst of them takes slots once."""
    world = Wide(tmp_path, 40, slots=8)
    world.idle_seconds = 30
    for job in world.jobs:
        world.scripts[job] = Script(seconds=3)
    for job in world.jobs[:3]:
        world.scripts[job] = Script(crashes=[crash()])
    world.ill = FULL
    fitted: list[int] = []
    seen: list[int] = []
    world.at(0.5, lambda: setattr(world.workers[0], "fit_runners", fitted.append))
    world.at(20, lambda: seen.append(len(world.ran)))
    well_later(world, 21)
    assert world.work() == ["idle"]
    assert seen == [5], "those in flight were done"
    assert fitted[0] == 4
    assert world.workers[0].slots.most == 6
    assert world.results() == world.jobs
    told = [event.detail for event in world.queues.events if event.kind == "host"]
    assert told == [{"taking": False, "why": FULL}]


def test_a_provider_that_refuses_is_no_matter_of_the_host(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.ill = FULL
    world.scripts[world.jobs[0]] = Script(crashes=[crash(min(RATE_LIMITED))])
    world.work(stop_at=5)
    assert [(message.failures, message.deaths) for message in world.messages()] == [(1, 0)]


@pytest.mark.fault("host-at-fault")
@pytest.mark.parametrize(
    ("killed", "kills", "counted"),
    [
        pytest.param(True, 1, (0, 1), id="the kernel killed it"),
        pytest.param(True, 0, (1, 0), id="somebody else did"),
        pytest.param(False, 1, (1, 0), id="it ended by itself, and the kernel killed another"),
    ],
)
def test_a_runner_that_the_kernel_killed_for_memory_costs_no_failure(
    tmp_path: Path, killed: bool, kills: int, counted: tuple[int, int]
) -> None:
    world = Wide(tmp_path, 1)
    world.oom_kills = 7
    world.scripts[world.jobs[0]] = Script(seconds=3, crashes=[death(killed=killed)])
    world.at(2, lambda: setattr(world, "oom_kills", 7 + kills))
    world.work(stop_at=5)
    assert [(message.failures, message.deaths) for message in world.messages()] == [counted]
    assert [record.why for record in uncounted(world)] == [
        "a runner died: killed (not counted: this host is unfit: the kernel killed a runner for memory)"
    ] * counted[1]


@pytest.mark.fault("host-at-fault")
def test_a_job_that_no_host_can_hold_ends_all_the_same(tmp_path: Path) -> None:
    """However often the host is well again in between, as it is once the job is dead."""
    world = Wide(tmp_path, 1)
    world.idle_seconds = 60
    starving = [death(killed=True) for _ in range(POISON_DEATHS + 2)]
    world.scripts[world.jobs[0]] = Script(seconds=10, crashes=list(starving))
    for at in range(5, 200, 10):
        world.at(at, lambda: setattr(world, "oom_kills", world.oom_kills + 1))
    well_later(world, *range(15, 300, 15))
    world.work()
    last = records(world)["1.json"]
    assert (last.kind, last.final) == (POISON, True)
    assert "ran out of memory or disk" in last.why
    assert world.queues.held == []
    assert POISON_DEATHS > MOST_FAILURES


@pytest.mark.fault("host-at-fault")
@pytest.mark.parametrize(
    ("code", "holds"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.ENOMEM, True), (errno.EACCES, False)]
)
def test_a_disk_without_room_for_a_jobs_folder_is_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, holds: bool
) -> None:
    """Nothing of the job has run, so that it is not even a death."""
    real: Callable[..., str] = tempfile.mkdtemp
    refuse = [code]

    def mkdtemp(*args: Any, **more: Any) -> str:
        if refuse:
            raise OSError(refuse.pop(), "no")
        return real(*args, **more)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    world = Wide(tmp_path, 1)
    well_later(world, 20)
    if not holds:
        with pytest.raises(BaseExceptionGroup):
            world.work()
        return
    taken(world, 1)
    assert world.work() == ["idle"]
    assert world.results() == world.jobs
    assert records(world) == {}
    started = [event for event in world.queues.events if event.kind == "job_started"]
    assert len(started) == 1
    assert any(f"[Errno {code}] no" in line for line in world.said)


@pytest.mark.fault("job-fails")
def test_a_failure_after_a_lost_lease_is_recorded_beside_those_that_count(tmp_path: Path) -> None:
    """The attempt that another worker makes meanwhile has the same number."""
    world = Wide(tmp_path, 1, slots=1)
    world.scripts[world.jobs[0]] = Script(seconds=100, crashes=[crash("Unlucky"), crash("Unlucky")])
    world.idle_seconds = 200
    world.at(1, lambda: world.queues.refuse.update(extend=BUSY))
    world.at(70, world.queues.refuse.clear)
    world.work(workers=2)
    found = records(world)
    (apart,) = uncounted(world)
    assert apart.why == "boom (not counted: its lease was lost before)"
    assert (apart.attempt, found["1.json"].attempt, apart.final) == (1, 1, False)
    assert len(found) == 2
    failed = [event.detail["attempt"] for event in world.queues.events if event.kind == "job_failed"]
    assert failed == [1]
