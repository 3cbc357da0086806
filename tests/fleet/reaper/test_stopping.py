"""Which runs are meant, and how a stop is followed to its end: on a clock of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from fleet.evals.progress import WorkerFacts, WorkerPhase
from fleet.reaper.ownership import KnownRun
from fleet.reaper.stopping import ANSWER_S, RunAmbiguous, RunUnknown, Stopped, chosen, stop
from tests.fleet.reaper.kit import NOW, Clock, known

CAT = KnownRun("aaaa1111-0", "elements on chemist · small-cat", "RUNNING", "Running", NOW)
DOG = KnownRun("aaaa2222-0", "elements on chemist · big-dog", "RUNNING", "Running", NOW)
OWL = KnownRun("bbbb3333-0", "gpqa on gpt-5 · baseline", "PAUSED", "Paused", NOW)
ALL = [CAT, DOG, OWL]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        (["bbbb"], [OWL]),
        (["AAAA1"], [CAT]),
        (["gpqa"], [OWL]),
        (["big"], [DOG]),
        (["elements on chemist · b"], [DOG]),
        (["small-cat", "aaaa1111"], [CAT]),
        (["bbbb3333-0", "big-dog"], [OWL, DOG]),
    ],
)
def test_a_run_is_named_by_the_beginning_of_its_id_or_name(asked: list[str], meant: list[KnownRun]) -> None:
    assert chosen(asked, ALL) == meant


def test_a_word_that_names_none_or_several_is_refused_with_what_there_is() -> None:
    with pytest.raises(RunAmbiguous, match=r"aaaa1111 \(elements on chemist · small-cat\) or aaaa2222"):
        chosen(["elements"], ALL)
    for none in ("aaa", "", "cat"):
        with pytest.raises(RunUnknown, match="bbbb3333"):
            chosen([none], ALL)
    with pytest.raises(RunUnknown, match="nothing runs"):
        chosen(["bbbb"], [])


@dataclass
class Prefect:
    """A run whose controller and workers end so many seconds after they were asked to; None: never."""

    clock: Clock
    controller: float | None = 3.0
    pool_worker: float | None = 2.0
    cancelled: float | None = None
    asked: float | None = None
    calls: list[str] = field(default_factory=list)

    def read(self, ids: Iterable[str]) -> Mapping[str, KnownRun]:
        over = self._since(self.cancelled, self.controller)
        return {run: known(run, "CANCELLED" if over else "CANCELLING") for run in ids}

    def cancel(self, run: str, why: str) -> None:
        self.calls.append("cancel")
        self.cancelled = self.clock()

    def workers(self, run: str) -> list[WorkerFacts]:
        by_controller = self._since(self.cancelled, self.controller)
        if by_controller or self._since(self.asked, self.pool_worker):
            return []
        return [WorkerFacts("w", "worker 1", WorkerPhase.WORKING, "i-1", "", 0.0)]

    def stop_workers(self, run: str, why: str) -> None:
        self.calls.append(f"stop workers after {self.clock() - NOW:.0f} s")
        self.asked = self.clock()

    def _since(self, moment: float | None, seconds: float | None) -> bool:
        return moment is not None and seconds is not None and self.clock() >= moment + seconds


def stopped(**facts: float | None) -> tuple[Stopped, Prefect, list[str]]:
    clock = Clock()
    prefect = Prefect(clock, **facts)  # type: ignore[arg-type]
    said: list[str] = []
    found = stop(CAT, prefect, why="w", patience=60.0, say=said.append, clock=clock, sleep=clock.sleep)
    return found, prefect, said


def test_a_controller_that_lives_tears_its_run_down_itself() -> None:
    found, prefect, said = stopped()
    assert (found.over, found.state, found.left) == (True, "Cancelled", ())
    assert prefect.calls == ["cancel"]
    assert said == ["aaaa1111 (elements on chemist · small-cat): Cancelling, instances that have yet to end: 1"]


def test_where_the_controller_is_gone_its_workers_are_asked_themselves() -> None:
    found, prefect, _ = stopped(controller=None)
    assert prefect.calls == ["cancel", f"stop workers after {ANSWER_S:.0f} s"]
    assert not found.over
    assert len(found.left) == 1
    assert "fleet reap --now" in found.left[0]


def test_what_does_not_end_is_named() -> None:
    found, _, _ = stopped(controller=None, pool_worker=None)
    assert found.left[0] == "instance i-1 of worker 1: the pool worker ends it, if one is running"
