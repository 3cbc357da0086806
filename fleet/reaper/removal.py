"""Carrying a survey out: marks set and taken off, and what is nobody's removed in the order of a run's own clean-up.

Before a run's things go, its lock and its flow run are looked at once more: one that was taken up in between keeps everything.
Then intake, secrets, instances, the other queues, and last the locks, which name the run for as long as anything of it is there
(`fleet.pool.clean_up` says why in this order). Whatever is refused is named, and keeps nothing else from going. Gone is what a
later look doesn't find, not what was asked for. Two reapers may do this at a time: an absent thing is success.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from fleet.errors import FleetError
from fleet.reaper.holdings import Holdings
from fleet.reaper.ownership import STRAYS, KnownRun, Runs, Survey, facts_of
from fleet.reaper.things import Thing
from fleet.reaper.verdict import Act, Decision, Life, Patience, standing

LOOK_S = 2.0
GONE_S = 180.0
"""How long things may take to be gone after they were asked to: SQS answers for a deleted queue for up to a minute."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done about one decision."""

    decision: Decision
    done: Literal["left", "removed", "marked", "unmarked", "kept"]
    left: str = ""
    """Why it is still there, though it should be gone, or has no mark, or still has one."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What was done about one run that nobody ends any more, and that has nothing."""

    run: KnownRun
    why: str
    done: Literal["left", "ended", "kept"]
    left: str = ""
    """Why it isn't over, though it should be."""


@dataclass(slots=True)
class Reaper:
    """One reaping. `carry_out` is all of it."""

    holdings: Holdings
    runs: Runs
    patience: Patience
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    gone_seconds: float = GONE_S

    def carry_out(self, survey: Survey) -> list[Outcome]:
        """Do what the survey calls for; an outcome for each decision, in its order. What AWS or Prefect refuses is in there."""
        outcomes: dict[Thing, Outcome] = {}
        doomed: dict[str, list[Decision]] = {}
        for one in survey.decisions:
            match one.act:
                case Act.KEEP:
                    outcomes[one.thing] = Outcome(one, "kept")
                case Act.MARK:
                    outcomes[one.thing] = self._mark(one, self.now())
                case Act.UNMARK:
                    outcomes[one.thing] = self._mark(one, None)
                case Act.REMOVE:
                    alone = one.thing.kind in STRAYS
                    doomed.setdefault("" if alone else one.thing.belongs_to, []).append(one)
        for run, decisions in doomed.items():
            outcomes |= dict(zip([one.thing for one in decisions], self._remove_all(run, decisions), strict=True))
        return [outcomes[one.thing] for one in survey.decisions]

    def end_unheeded(self, survey: Survey) -> list[Ended]:
        """Say of the runs that were told to end, and have nothing, that they are over."""
        return [self._end(run, why) for run, why in survey.unheeded.items()]

    def _end(self, run: KnownRun, why: str) -> Ended:
        try:
            now = self.runs.read([run.id]).get(run.id)
            if now is None or now.state != run.state or now.since != run.since:
                return Ended(run, "it has gone on meanwhile", "kept")
            if any(lock.run == run.id for lock in self.holdings.locks([])):
                return Ended(run, "it holds a lock by now", "kept")
            self.runs.end(run.id, why)
        except Exception as error:  # noqa: BLE001 - AWS or Prefect doesn't answer: the others have their turn
            return Ended(run, why, "left", str(error))
        return Ended(run, why, "ended")

    def _mark(self, decision: Decision, moment: float | None) -> Outcome:
        """A mark that is refused is named: without one a thing is never removed, with an old one too soon."""
        try:
            self.holdings.mark(decision.thing, moment)
        except FleetError as error:
            if self._gone(decision.thing):
                return Outcome(dataclasses.replace(decision, why="it has gone by itself"), "removed")
            what = "its mark couldn't be taken off" if moment is None else "it couldn't be marked"
            return Outcome(decision, "left", f"{what}: {error}")
        return Outcome(decision, "unmarked" if moment is None else "marked")

    def _remove_all(self, run: str, decisions: Sequence[Decision]) -> list[Outcome]:
        """The end of one flow run's things, in order."""
        things = [one.thing for one in decisions]
        evals = any(one.run for one in things) and bool(run)
        if run:
            try:
                why = self._alive_after_all(run, things)
                if not why and evals:  # else a pool worker would launch instances for what is being removed
                    self.runs.end(run, decisions[0].why)
            except Exception as error:  # noqa: BLE001 - AWS or Prefect doesn't answer: then nothing of the run is touched
                why = f"it couldn't be looked at again: {error}"
            if why:
                return [Outcome(dataclasses.replace(one, why=why), "kept") for one in decisions]
        return self.finish(run, decisions)

    def finish(self, run: str, decisions: Sequence[Decision]) -> list[Outcome]:
        """Remove what there is of a flow run that is over for certain, its locks included; an outcome for each decision."""
        things = [one.thing for one in decisions]
        works = [one for one in things if one.kind != "lock"]
        troubles = self._remove(works)
        if run and any(one.run for one in things) and not any(one.kind == "instance" for one in troubles):
            with suppress(Exception):  # only for the eyes: the next pool worker settles them too
                self.runs.settle(run, "its run is over, and its instance is gone")
        locks = [one for one in things if one.kind == "lock"]
        # A lock says whose the rest is: it goes when there is none.
        stays = "it stays while something of its run is left"
        troubles |= dict.fromkeys(locks, stays) if troubles else self._remove(locks)
        return [
            Outcome(one, "left" if one.thing in troubles else "removed", troubles.get(one.thing, ""))
            for one in decisions
        ]

    def _alive_after_all(self, run: str, things: Sequence[Thing]) -> str:
        """Why a run is no longer thought to be dead; empty: it is."""
        known = self.runs.read([run]).get(run)
        # A lock may be another run's by now: then this one is as dead as before. Or it has one that it hadn't.
        works = [one for one in things if one.kind != "lock"]
        own = [*works, *(lock for lock in self.holdings.locks(works) if lock.run == run)]
        facts = facts_of(run, own, known, frozenset(), now=self.now())
        found = standing(dataclasses.replace(facts, evals=any(one.run for one in things), ours=True), self.patience)
        return "" if found.life is Life.DEAD else found.why

    def _remove(self, things: Sequence[Thing]) -> dict[Thing, str]:
        """Ask for the end of these, step by step, and see them go; those that are left, each with the reason."""
        refusals: dict[Thing, str] = {}
        for step in in_order(things):
            for thing in step:
                self._ask(thing, refusals)
        # An instance may go although we may not end it: its pool worker has heard that its flow run is to end.
        asked = [one for one in things if one not in refusals or one.kind == "instance"]
        left = self._wait(asked)
        late = f"it was asked to end, and is still there after {self.gone_seconds:.0f} s"
        return {one: refusals.get(one, late) for one in things if one in left or one not in asked}

    def _ask(self, thing: Thing, troubles: dict[Thing, str]) -> None:
        try:
            self.holdings.remove(thing)
        except FleetError as error:
            troubles[thing] = str(error)

    def _wait(self, things: Sequence[Thing]) -> list[Thing]:
        """Those that are still there after all patience."""
        until = self.clock() + self.gone_seconds
        while things := [one for one in things if not self._gone(one)]:
            if self.clock() >= until:
                return list(things)
            self.sleep(LOOK_S)
        return []

    def _gone(self, thing: Thing) -> bool:
        try:
            return self.holdings.gone(thing)
        except FleetError:
            return False  # what can't be looked at isn't known to be gone


def in_order(things: Sequence[Thing]) -> list[list[Thing]]:
    """The steps of a clean-up, one after the other."""

    def intake(one: Thing) -> bool:
        return one.kind == "queue" and one.id.endswith("-work")

    steps: list[Callable[[Thing], bool]] = [
        intake,
        lambda one: one.kind == "parameter",
        lambda one: one.kind == "instance",
        lambda one: one.kind == "queue" and not intake(one),
        lambda one: one.kind in STRAYS,
        lambda one: one.kind == "lock",
    ]
    return [[one for one in things if step(one)] for step in steps]
