"""Whose things are, and what is known of those flow runs: the facts that `verdict` decides by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fleet.reaper.holdings import Seen
from fleet.reaper.things import Thing
from fleet.reaper.verdict import (
    Decision,
    Facts,
    Life,
    Patience,
    Standing,
    decide,
    decide_stray,
    standing,
    unclaimed,
)

STRAYS = frozenset({"volume", "launch template"})
FORGOTTEN_S = 15 * 86_400.0
"""Seconds after which nothing of a run that Prefect doesn't know can be where nobody has looked but empty queues: an instance lives
for a day at most, a queue's messages for two weeks."""


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
    begun: int = 1
    """How often it has come to be at work."""
    region: str = ""
    """Where a run of evals was asked to have its fleet; empty: it doesn't say, which means the account's own."""


class Runs(Protocol):
    """Flow runs and work pools of one Prefect server (`fleet.reaper.runs`, or a fake). Raises whatever keeps it from answering."""

    def read(self, ids: Iterable[str]) -> Mapping[str, KnownRun]:
        """Those of these flow runs that the server knows."""

    def active(self) -> list[KnownRun]:
        """The runs of evals that have begun, or are due, and aren't over."""

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
    unheeded: Mapping[KnownRun, str] = field(default_factory=dict)
    """The runs that were told to end, have nothing, and have nobody any more who would say that they have ended; each with why
    that is thought."""


def survey(seen: Seen, runs: Runs, patience: Patience, *, now: float, account: str = "default") -> Survey:
    """Whose everything is, and what becomes of it. `account`: the Fleet Account block of this deployment."""
    owned, active = _by_owner(seen.things), runs.active()
    known, pools = runs.read(sorted(owned)), runs.pools()
    standings: dict[str, Standing] = {}
    decisions: list[Decision] = []
    for owner, things in owned.items():
        run = known.get(owner)
        found = standing(facts_of(owner, things, run, pools, now=now, account=account, home=seen.home), patience)
        standings[owner] = found
        decisions += decide(things, found, patience, now=now, elsewhere=elsewhere(things, run, seen, now=now))
    for thing in seen.things:
        if thing.kind in STRAYS:
            decisions.append(decide_stray(thing, patience, now=now, ours=thing.pool in pools))
        elif not thing.belongs_to:
            found = unclaimed(thing, patience, now=now, ours=thing.pool in pools)
            decisions += decide([thing], found, patience, now=now)
    unheeded: dict[KnownRun, str] = {}
    for run in active:
        if run.state == "CANCELLING" and run.id not in owned and run.account == account:
            found = standing(_without_things(run, now=now), patience)
            if found.life is Life.DEAD:
                unheeded[run] = found.why
    return Survey(seen, tuple(decisions), standings, known, unheeded)


def facts_of(
    owner: str,
    things: Iterable[Thing],
    known: KnownRun | None,
    pools: frozenset[str],
    *,
    now: float,
    account: str = "default",
    home: str = "",
) -> Facts:
    """What is known of a flow run that these things belong to. `home`: where this deployment's locks lie."""
    things = list(things)
    expiries = [thing.expires for thing in things if thing.expires is not None]
    homes = {thing.home for thing in things if thing.home}
    evals = any(thing.run == owner for thing in things)
    # One server may serve several accounts' runs, and a block may name another bucket by now: where a run's locks lie in
    # another one, their absence here says nothing.
    if expiries:
        ours = True
    elif homes and home not in homes:
        ours = False
    elif known and evals:
        ours = bool(homes) or known.account == account
    else:
        ours = known is not None or any(one.pool in pools for one in things)
    return Facts(
        state=known.state if known else None,
        said=known.said if known else "",
        quiet=now - known.since if known else 0.0,
        evals=evals,
        lock_over=now - max(expiries) if expiries else None,
        made=any(thing.kind != "lock" for thing in things),
        begun=known.begun if known else 1,
        ours=ours,
    )


def _without_things(run: KnownRun, *, now: float) -> Facts:
    """What is known of a run of evals that has nothing, a lock neither."""
    return Facts(state=run.state, said=run.said, quiet=now - run.since, made=False, begun=run.begun)


def elsewhere(things: Sequence[Thing], known: KnownRun | None, seen: Seen, *, now: float) -> str:
    """Why a run of evals may have more than these things, where nobody has looked; empty: it can't.

    Its fleet is in one region, and so is all that it makes but the locks: in the one that it was asked for, or in the account's own
    where a person named none. Prefect keeps the option's default for that.
    """
    if any(one.kind != "lock" for one in things):
        return ""
    if known is None:
        young = [one for one in things if one.expires is not None and now - one.expires < FORGOTTEN_S]
        return "Prefect can't say in which region its fleet was" if young else ""
    dark = sorted({known.region or seen.own_region, seen.own_region} - set(seen.regions))
    return f"its fleet may have been in {' or '.join(dark)}, which wasn't seen" if dark else ""


def _by_owner(things: Iterable[Thing]) -> Mapping[str, list[Thing]]:
    found: dict[str, list[Thing]] = defaultdict(list)
    for thing in things:
        if thing.belongs_to and thing.kind not in STRAYS:
            found[thing.belongs_to].append(thing)
    return found
