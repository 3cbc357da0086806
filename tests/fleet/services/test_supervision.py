"""Processes that are kept alive, on a clock that only the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fleet.services.supervision import (
    CALM_SECONDS,
    HEALTH_SECONDS,
    LONGEST_PAUSE,
    MISSES,
    START_SECONDS,
    Part,
    Supervision,
    pause,
)


@dataclass
class Process:
    code: int | None = None
    killed: bool = False

    def ended(self) -> int | None:
        return self.code

    def tell(self) -> None:
        self.code = 0

    def kill(self) -> None:
        self.killed, self.code = True, -9


@dataclass
class Bench:
    """A server that is well while `well` says so, a step that is done once, and what leans on both."""

    well: bool = True
    now: float = 1_000.0
    started: dict[str, list[Process]] = field(default_factory=lambda: {"server": [], "deploy": [], "workers": []})
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = Supervision(
            [
                Part("server", lambda: self.start("server"), lambda: self.well),
                Part("deploy", lambda: self.start("deploy"), after="server", once=True),
                Part("workers", lambda: self.start("workers"), after="deploy"),
            ],
            self.said.append,
        )

    def start(self, name: str) -> Process:
        self.started[name].append(Process())
        return self.started[name][-1]

    def look(self, seconds: float = 0.0) -> None:
        """Time passes, then two looks: one that sees, one that acts on it."""
        self.now += seconds
        self.kept.look(self.now)
        self.kept.look(self.now)

    def count(self, name: str) -> int:
        return len(self.started[name])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_part_begins_when_the_one_it_leans_on_answers(bench: Bench) -> None:
    bench.well = False
    bench.look()
    assert (bench.count("server"), bench.count("deploy"), bench.count("workers")) == (1, 0, 0)
    bench.well = True
    bench.look(1)
    assert (bench.count("deploy"), bench.count("workers")) == (1, 0)
    bench.started["deploy"][0].code = 0
    bench.look(1)
    assert bench.count("workers") == 1
    bench.look(1)
    assert bench.kept.well()
    assert bench.count("deploy") == 1, "done once"


def test_a_part_that_ends_starts_again_with_growing_pauses(bench: Bench) -> None:
    bench.look()
    for number, wait in enumerate((1, 2, 4, 8), 1):
        bench.started["server"][-1].code = 1
        bench.look()
        bench.look(wait - 0.1)
        assert bench.count("server") == number
        bench.look(0.2)
        assert bench.count("server") == number + 1


def test_pauses_have_an_end_however_often_it_fails() -> None:
    assert [pause(failures) for failures in (1, 2, 3, 7, 10_000)] == [1, 2, 4, LONGEST_PAUSE, LONGEST_PAUSE]


def test_one_that_ran_for_long_starts_again_at_once(bench: Bench) -> None:
    bench.look()
    for _ in range(5):
        bench.started["server"][-1].code = 1
        bench.look()
        bench.look(LONGEST_PAUSE)
    bench.look(CALM_SECONDS)
    bench.started["server"][-1].code = 1
    before = bench.count("server")
    bench.look()
    bench.look(1)
    assert bench.count("server") == before + 1


def test_a_server_that_falls_silent_is_replaced(bench: Bench) -> None:
    """One miss isn't enough; the process is killed, since it may not hear anything else."""
    bench.look()
    bench.well = False
    for _ in range(MISSES - 1):
        bench.look(HEALTH_SECONDS)
    assert not bench.started["server"][0].killed
    bench.well = True
    bench.look(HEALTH_SECONDS)
    bench.well = False
    for _ in range(MISSES):
        bench.look(HEALTH_SECONDS)
    assert bench.started["server"][0].killed
    bench.look(1)
    assert bench.count("server") == 2


def test_a_slow_start_is_given_its_time_and_no_more(bench: Bench) -> None:
    bench.well = False
    bench.look()
    bench.look(START_SECONDS - 1)
    assert not bench.started["server"][0].killed
    bench.look(1)
    assert bench.started["server"][0].killed


def test_a_step_that_failed_is_done_again_and_nothing_begins_before(bench: Bench) -> None:
    bench.look()
    bench.started["deploy"][0].code = 1
    bench.look()
    assert bench.count("workers") == 0
    bench.look(1)
    bench.started["deploy"][1].code = 0
    bench.look()
    assert bench.count("workers") == 1


def test_a_program_that_is_not_there_is_tried_again() -> None:
    tries: list[int] = []

    def absent() -> Process:
        tries.append(1)
        raise FileNotFoundError("no such program")

    said: list[str] = []
    kept = Supervision([Part("server", absent)], said.append)
    kept.look(0)
    kept.look(0.5)
    kept.look(1.0)
    assert len(tries) == 2
    assert "couldn't be started: no such program" in said[0]


def test_the_last_part_is_ended_first_and_one_that_wont_is_killed(bench: Bench) -> None:
    bench.look()
    bench.started["deploy"][0].code = 0
    bench.look()
    assert [name for name, _ in bench.kept.running()] == ["workers", "server"]
    deaf = bench.started["server"][0]
    deaf.tell = lambda: None  # type: ignore[method-assign]
    times = iter(range(1_000))
    bench.kept.stop(lambda: float(next(times)), lambda _: None)
    assert bench.started["workers"][0].code == 0
    assert deaf.killed
    assert bench.said[-3:] == ["workers is told to end", "server is told to end", "server is ended by force"]
