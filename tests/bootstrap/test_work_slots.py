"""How many jobs a worker runs at a time: more while all goes well, fewer once a provider refuses calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bootstrap.slots import Slots
from bootstrap.work import Work
from fleet.evals.forecast import DOUBLE_EVERY
from tests.bootstrap.mishaps import crash
from tests.bootstrap.world import Script, World


def test_slots_in_full_use_by_long_jobs_double_with_time(tmp_path: Path) -> None:
    world = World(tmp_path, 20, slots=4)
    world.slots = Slots(most=16, now=4)
    world.scripts = {job: Script(seconds=1000) for job in world.jobs}
    seen: list[int] = []
    for at in (DOUBLE_EVERY - 1, DOUBLE_EVERY + 1, 2 * DOUBLE_EVERY + 1, 3 * DOUBLE_EVERY + 1):
        world.at(at, lambda: seen.append(world.workers[0].running))
    world.work()
    assert seen == [4, 8, 16, 16]


def test_rate_limits_halve_the_slots_once_and_are_told(tmp_path: Path) -> None:
    world = World(tmp_path, 8, slots=8)
    for job in world.jobs:
        world.scripts[job] = Script(rate_limited=3)
    world.work()
    assert world.workers[0].slots.now == 4
    told = [event for event in world.queues.events if event.kind == "rate_limited"]
    assert len(told) == 8
    assert told[-1].detail == {"times": 3, "slots": 4}


@pytest.mark.fault("rate-limit")
def test_a_job_that_fails_by_a_rate_limit_halves_the_slots_too(tmp_path: Path) -> None:
    world = World(tmp_path, 1, slots=8)
    world.scripts[world.jobs[0]] = Script(crashes=[crash("RateLimitError")])
    world.work()
    assert world.workers[0].slots.now == 4


@pytest.mark.fault("rate-limit")
def test_refused_calls_of_jobs_in_flight_cut_the_slots_and_quiet_rounds_win_them_back(tmp_path: Path) -> None:
    """Long jobs: nobody waits for their end to hear of it. They go on, and what they make room for isn't taken."""
    world = World(tmp_path, 40, slots=16)
    world.slots = Slots(most=16, now=16)
    world.scripts = {job: Script(seconds=40) for job in world.jobs}
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append((world.workers[0].running, world.workers[0].slots.now))

    world.at(10, lambda: world.workers[0].refused(3.0))
    world.at(11, look)
    world.at(50, look)
    world.at(1, lambda: setattr(world.workers[0], "draw", lambda: 0.5))
    for _ in range(8):
        world.at(60, lambda: world.workers[0].refused(15.0))
    world.at(79, look)
    world.work()
    assert seen[:2] == [(16, 8), (8, 8)]
    assert seen[2][1] == 2, "half of the time was waited: what is left of eight, less a fifth of them"
    assert world.workers[0].slots.now > 2
    assert any("rate limited: 16 slots become 8" in line for line in world.said)


@pytest.mark.fault("rate-limit")
def test_a_job_that_waits_for_its_next_attempt_takes_no_slots(tmp_path: Path) -> None:
    world = World(tmp_path, 4)
    world.slots = Slots(most=8, now=4, level=4.0, level_known=True)
    world.scripts = {job: Script(seconds=100) for job in world.jobs[1:]}
    world.scripts[world.jobs[0]] = Script(crashes=[crash("RateLimitError")])
    seen: list[int] = []
    world.at(50, lambda: seen.append(world.workers[0].slots.now))
    world.work()
    assert seen == [4]


def test_a_round_takes_its_time_however_long_its_beats_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat is as long as SQS takes for its report."""
    world = World(tmp_path, 4)
    world.slots = Slots(most=8, now=4, level=4.0, level_known=True)
    world.scripts = {job: Script(seconds=100) for job in world.jobs}
    seen: list[int] = []

    async def slowly(work: Work) -> None:
        send = work.deliveries.reports.send

        async def slow(kind: Any, *args: Any, **detail: Any) -> None:
            await world.time.sleep(20 if kind == "beat" else 0)
            await send(kind, *args, **detail)

        monkeypatch.setattr(work.deliveries.reports, "send", slow)

    world.beside = [slowly]
    world.at(10, lambda: world.workers[0].refused(30.0))
    world.at(60, lambda: seen.append(world.workers[0].slots.now))
    world.work()
    assert seen != [4], "two beats of 25 s are a round"
