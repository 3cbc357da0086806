"""When a host is unfit, well again, or given up; and a worker beside which it is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bootstrap.guard import (
    GIB,
    GIVE_UP_SECONDS,
    LOOK_SECONDS,
    PRUNE_EVERY_SECONDS,
    Ailment,
    Filesystem,
    Guard,
    Health,
    Reading,
    Step,
    advice,
    after_look,
    ailments,
)
from bootstrap.runners import JobCrashed
from tests.bootstrap.world import Script, World


def disk(free: float, size: float = 100.0, *, inodes: tuple[int, int] = (0, 0)) -> Reading:
    """GiB."""
    return Reading(filesystems=(Filesystem("/d", int(free * GIB), int(size * GIB), *inodes),))


def memory(available: float, size: float) -> Reading:
    return Reading(memory=(int(available * GIB), int(size * GIB)))


ILL_DISK, ILL_INODES, ILL_MEMORY = ("disk", "/d"), ("inodes", "/d"), ("memory", "")


@pytest.mark.parametrize(
    ("reading", "before", "kinds"),
    [
        pytest.param(Reading(), (), [], id="nothing is known, nothing is wrong"),
        pytest.param(disk(6), (), [], id="enough of a disk"),
        pytest.param(disk(4.9), (), ["disk"], id="less than 5%"),
        pytest.param(disk(20, 1000), (), [], id="2% of a large disk are plenty"),
        pytest.param(disk(0.5, 20), (), ["disk"], id="a small disk"),
        pytest.param(disk(1.5, 20), (), [], id="and enough of it"),
        pytest.param(disk(6), [ILL_DISK], ["disk"], id="what was too little has to be twice as much"),
        pytest.param(disk(10.1), [ILL_DISK], [], id="and is, then"),
        pytest.param(disk(6), [ILL_MEMORY], [], id="each by itself"),
        pytest.param(disk(50, inodes=(20, 1000)), (), ["inodes"], id="inodes"),
        pytest.param(disk(50, inodes=(40, 1000)), [ILL_INODES], ["inodes"], id="inodes, not well again"),
        pytest.param(disk(50, inodes=(60, 1000)), [ILL_INODES], [], id="inodes, well again"),
        pytest.param(disk(50, inodes=(0, 0)), (), [], id="a filesystem that makes inodes as it goes"),
        pytest.param(memory(1.0, 32), (), ["memory"], id="memory"),
        pytest.param(memory(2.1, 512), (), [], id="2 GiB are enough on any machine"),
        pytest.param(memory(3, 32), [ILL_MEMORY], ["memory"], id="memory, not well again"),
        pytest.param(Reading(engine="no answer"), (), ["engine"], id="the engine"),
        pytest.param(Reading(silent="it hangs"), (), ["silent"], id="no reading"),
        pytest.param(disk(1, inodes=(1, 1000)), (), ["disk", "inodes"], id="two at a time"),
    ],
)
@pytest.mark.fault("host-bad")
def test_what_is_wrong_with_a_host(reading: Reading, before: Sequence[tuple[str, str]], kinds: list[str]) -> None:
    assert [one.kind for one in ailments(reading, before)] == kinds


def test_each_ailment_says_how_much_there_is_and_where() -> None:
    whys = [one.why for one in ailments(disk(1.25, inodes=(1234, 1_000_000)))]
    assert whys == ["1.2 GiB of 100.0 GiB free in /d", "1,234 of 1,000,000 inodes free in /d"]


FULL = Ailment("disk", "/d", "full")


@pytest.mark.parametrize(
    ("looks", "steps"),
    [
        pytest.param([(0, False)], ["NOTHING"], id="well"),
        pytest.param([(0, True), (15, False), (30, True)], ["NOTHING"] * 3, id="one bad look is a moment's"),
        pytest.param([(0, True), (15, True)], ["NOTHING", "HOLD"], id="two in a row"),
        pytest.param([(0, True), (15, True), (30, False)], ["NOTHING", "HOLD", "RESUME"], id="well again"),
        pytest.param(
            [(0, True), (15, True), (30, False), (45, True), (60, True)],
            ["NOTHING", "HOLD", "RESUME", "NOTHING", "HOLD"],
            id="and bad again",
        ),
        pytest.param(
            [(0, True), (15, True), (100, True), (135, True), (150, True)],
            ["NOTHING", "HOLD", "NOTHING", "PRUNE", "NOTHING"],
            id="what was too young is tried again",
        ),
        pytest.param(
            [(0, True), (15, True), (14 + GIVE_UP_SECONDS, True), (15 + GIVE_UP_SECONDS, True)],
            ["NOTHING", "HOLD", "PRUNE", "LEAVE"],
            id="it stays bad",
        ),
    ],
)
@pytest.mark.fault("host-bad")
def test_what_the_looks_call_for(looks: list[tuple[float, bool]], steps: list[str]) -> None:
    health, seen = Health(), []
    for at, bad in looks:
        health, step = after_look(health, [FULL] if bad else [], at)
        seen.append(step)
    assert seen == [Step[name] for name in steps]


@pytest.mark.fault("host-stays-bad")
def test_a_job_that_stopped_the_intake_leaves_the_guard_one_look_to_decide() -> None:
    health, step = after_look(Health(), [], 15.0, held=True)
    assert (health, step) == (Health(), Step.RESUME)
    health, step = after_look(Health(), [FULL], 15.0, held=True)
    assert step is Step.HOLD
    assert health.held_at == 15


def test_there_is_advice_for_each_ailment() -> None:
    for kind in ("disk", "inodes", "memory", "engine", "silent"):
        assert advice([Ailment(kind, "", "")]).startswith("If it happens again, ")


@dataclass
class Host:
    """A host that is looked at beside a worker."""

    world: World
    now: Reading = field(default_factory=Reading)
    looked: list[float] = field(default_factory=list)
    pruned: list[float] = field(default_factory=list)
    prunes: bool = True

    def __post_init__(self) -> None:
        self.guard = Guard(
            self._read,
            self._prune if self.prunes else None,
            clockwork=self.world.time.clockwork(),
            say=self.world.said.append,
        )
        self.world.beside.append(self.guard)

    async def _read(self) -> Reading:
        self.looked.append(self.world.time.now)
        return self.now

    async def _prune(self) -> str:
        self.pruned.append(self.world.time.now)
        return "room was made"

    def becomes(self, at: float, reading: Reading) -> None:
        self.world.at(at, lambda: setattr(self, "now", reading))

    def told(self) -> list[dict[str, object]]:
        return [dict(event.detail) for event in self.world.queues.events if event.kind == "host"]


@pytest.mark.fault("host-bad")
def test_a_full_disk_stops_the_intake_and_room_lets_it_go_on(tmp_path: Path) -> None:
    world = World(tmp_path, 40, slots=2)
    host = Host(world)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=10)
    host.becomes(20, disk(1))
    host.becomes(100, disk(6))  # not well yet
    host.becomes(200, disk(40))
    seen: list[int] = []
    world.at(199, lambda: seen.append(len(world.ran)))
    assert world.work() == ["idle"]
    assert host.looked[:4] == [LOOK_SECONDS * n for n in range(4)]
    assert seen == [10], "two at a time until 45 s, when the second bad look came, and those in flight"
    assert host.pruned == [45, 45 + PRUNE_EVERY_SECONDS]
    assert world.results() == world.jobs
    why = "1.0 GiB of 100.0 GiB free in /d"
    assert host.told() == [{"taking": False, "why": why}, {"taking": True, "why": ""}]
    assert any(why in line and "No more jobs are taken" in line for line in world.said)
    assert any("well again" in line for line in world.said)


@pytest.mark.fault("host-stays-bad")
def test_a_host_that_stays_bad_gives_its_jobs_back_and_ends(tmp_path: Path) -> None:
    world = World(tmp_path, 4, slots=2)
    host = Host(world)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=5000)
    host.becomes(20, Reading(engine="no answer from docker within 30 seconds"))
    assert world.work() == ["host"]
    assert world.time.now == 45 + GIVE_UP_SECONDS
    assert world.waiting() == world.jobs
    assert host.pruned == [], "room is no cure for it"
    assert world.workers[0].why == "Docker's engine doesn't answer (no answer from docker within 30 seconds)"
    assert "journalctl" in host.guard.advice


@pytest.mark.fault("host-bad")
def test_low_memory_takes_slots_and_gives_nothing_back_at_first(tmp_path: Path) -> None:
    world = World(tmp_path, 30, slots=8)
    host = Host(world)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=100)
    host.becomes(20, memory(0.5, 32))
    host.becomes(110, memory(16, 32))
    assert world.work() == ["idle"]
    assert world.results() == world.jobs
    assert not [event for event in world.queues.events if event.kind == "given_back"]
    assert world.workers[0].slots.most == 6
    kinds = [event.kind for event in world.queues.events]
    after = world.queues.events[len(kinds) - kinds[::-1].index("host") :]
    assert host.told()[-1]["taking"] is True
    assert max(int(str(event.detail["running"])) for event in after if event.kind == "beat") == 6, "of 8 before"
    assert host.pruned == []


@pytest.mark.fault("host-at-fault")
def test_a_job_that_ends_for_the_host_stops_the_intake_until_the_next_look(tmp_path: Path) -> None:
    """A full disk fails jobs within seconds, and two looks take thirty."""
    world = World(tmp_path, 20, slots=4)
    host = Host(world)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=4)
    world.scripts[world.jobs[0]] = Script(crashes=[JobCrashed(kind="OSError", why="no space left")])
    world.ill = "1.0 GiB of 100.0 GiB free in /d"
    seen: list[int] = []
    world.at(LOOK_SECONDS - 1, lambda: seen.append(len(world.ran)))
    assert world.work() == ["idle"]
    assert seen == [3]
    assert [told["taking"] for told in host.told()] == [False, True]
    assert world.results() == world.jobs
    assert host.pruned == []


def test_jobs_that_end_for_memory_and_a_look_that_finds_none_take_slots_once(tmp_path: Path) -> None:
    world = World(tmp_path, 20, slots=8)
    host = Host(world)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=100)
    for job in world.jobs[:2]:
        world.scripts[job] = Script(seconds=3, crashes=[JobCrashed(kind="MemoryError", why="no")])
    world.ill = "0.5 GiB of 32.0 GiB memory available"
    host.becomes(2, memory(0.5, 32))
    host.becomes(40, memory(16, 32))
    assert world.work() == ["idle"]
    assert world.workers[0].slots.most == 6
    assert world.results() == world.jobs


def test_a_host_with_nothing_to_remove_is_guarded_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, 2, slots=2)
    host = Host(world, prunes=False)
    for job in world.jobs:
        world.scripts[job] = Script(seconds=5000)
    host.becomes(0, disk(0))
    assert world.work() == ["host"]
    assert "volume_gb" in host.guard.advice
