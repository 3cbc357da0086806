"""Whose things are, and what is known of those flow runs: the facts that `verdict` decides by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fleet.reaper.holdings import Seen
from fleet.reaper.things import Thing
from fleet.reaper.verdict import (
    Decision,
    Facts,
    Patience,
    Standing,
    decide,
    decide_stray,
    standing,
    unclaimed,
)

STRAYS = frozenset({"volume", "launch template"})


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A flow run as Prefect knows it. Times are seconds since the epoch."""

    id: str
    name: str
    state: str
    """The state's type."""
    said: str
    """The state's name."""
    since: float
    """When it came into that state."""
    account: str = "default"
    """The Fleet Account block that a run of evals was started with."""
    began: float = 0.0
    """When it was begun, or is to be."""


class Runs(Protocol):
    """Flow runs and work pools of one Prefect server (`fleet.reaper.runs`, or a fake). Raises whatever keeps it from answering."""

    def read(self, ids: Iterable[str]) -> Mapping[str, KnownRun]:
        """Those of these flow runs that the server knows."""

    def pools(self) -> frozenset[str]:
        """The ids of its work pools."""

    def end(self, run: str, why: str) -> None:
        """Say of a run that nobody controls any more that it is over, and call its workers off."""

    def settle(self, run: str, why: str) -> None:
        """Say of the workers of a run that they are over, now that their instances are gone."""


@dataclass(frozen=True, slots=True)
class Survey:
    """One look at everything, and what it calls for."""

    seen: Seen
    decisions: tuple[Decision, ...]
    standings: Mapping[str, Standing]
    """By flow run."""
    runs: Mapping[str, KnownRun]


def survey(seen: Seen, runs: Runs, patience: Patience, *, now: float, account: str = "default") -> Survey:
    """Whose everything is, and what becomes of it. `account`: the Fleet Account block of this deployment."""
    owners = {thing.belongs_to for thing in seen.things if thing.kind not in STRAYS and thing.belongs_to}
    known, pools = runs.read(sorted(owners)), runs.pools()
    standings: dict[str, Standing] = {}
    decisions: list[Decision] = []
    for owner, things in _by_owner(seen.things).items():
        found = standing(facts_of(owner, things, known.get(owner), pools, now=now, account=account), patience)
        standings[owner] = found
        decisions += decide(things, found, patience, now=now)
    for thing in seen.things:
        if thing.kind in STRAYS:
            decisions.append(decide_stray(thing, patience, now=now, ours=thing.pool in pools))
        elif not thing.belongs_to:
            found = unclaimed(thing, patience, now=now, ours=thing.pool in pools)
            decisions += decide([thing], found, patience, now=now)
    return Survey(seen, tuple(decisions), standings, known)


def facts_of(
    owner: str,
    things: Iterable[Thing],
    known: KnownRun | None,
    pools: frozenset[str],
    *,
    now: float,
    account: str = "default",
) -> Facts:
    """What is known of a flow run that these things belong to."""
    things = list(things)
    expiries = [thing.expires for thing in things if thing.expires is not None]
    evals = any(thing.run == owner for thing in things)
    # One server may serve several accounts' runs, whose locks lie in other buckets: their absence here says nothing.
    ours = (
        known.account == account if known and evals else known is not None or any(one.pool in pools for one in things)
    )
    return Facts(
        state=known.state if known else None,
        said=known.said if known else "",
        quiet=now - known.since if known else 0.0,
        evals=evals,
        lock_over=now - max(expiries) if expiries else None,
        ours=bool(expiries) or ours,
    )


def _by_owner(things: Iterable[Thing]) -> Mapping[str, list[Thing]]:
    found: dict[str, list[Thing]] = defaultdict(list)
    for thing in things:
        if thing.belongs_to and thing.kind not in STRAYS:
            found[thing.belongs_to].append(thing)
    return found
