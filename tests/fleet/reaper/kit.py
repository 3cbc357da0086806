"""An account and a Prefect server in memory, for what the reaper decides and does. No test in here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.aws.failures import AwsRefused
from fleet.reaper.holdings import Seen
from fleet.reaper.ownership import KnownRun
from fleet.reaper.things import Kind, Thing
from fleet.reaper.verdict import FINAL

NOW = 1_900_000_000.0
POOL = "pool-of-ours"
REGION = "us-east-1"
REGIONS = (REGION, "eu-west-1")
"""Where an account is looked at."""
HOME = "s3://here/p"
"""Where its locks lie."""


def thing(kind: Kind, id: str, run: str = "r1", **facts: object) -> Thing:  # noqa: A002  the thing's own word for it
    given: dict[str, object] = {"born": NOW - 10_000, "pool": POOL if kind in ("instance", "volume") else ""}
    return Thing(kind, id, REGION, run=run, **(given | facts))  # type: ignore[arg-type]


def lock(run: str, expires_in: float, *, name: str = "") -> Thing:
    return thing("lock", name or f"p/evals/{run}/lock.json", run, expires=NOW + expires_in, etag="1", pool="")


def everything_of(run: str, *, lock_in: float | None = -2_000.0, marked: float | None = None) -> list[Thing]:
    """What a run has while it is at work."""
    found = [
        thing("instance", f"i-{run}", run, marked=marked, flow_run=f"w-{run}"),
        *(
            thing("queue", f"https://sqs/inspect-fleet-{run}-{use}", run, marked=marked)
            for use in ("work", "events", "dead")
        ),
        thing("parameter", f"/inspect-fleet/instances/{run}/i-{run}", run),
    ]
    return found if lock_in is None else [*found, lock(run, lock_in)]


@dataclass
class Account:
    """Things by id; `foreign` is what lacks our tags, which a look never shows. What is touched is written down."""

    things: dict[str, Thing]
    foreign: set[str] = field(default_factory=set)
    refuses: set[str] = field(default_factory=set)
    """Ids that AWS won't end."""
    stubborn: set[str] = field(default_factory=set)
    """Ids that stay although AWS said yes."""
    touched: list[str] = field(default_factory=list)
    dark: set[str] = field(default_factory=set)
    """Regions that don't answer."""
    home: str = HOME

    @classmethod
    def of(cls, things: Iterable[Thing], **more: Any) -> Account:
        return cls({one.id: one for one in things}, **more)

    def look(self) -> Seen:
        found = [one for one in self.things.values() if one.id not in self.foreign]
        seen = [one for one in found if one.kind == "lock" or one.region not in self.dark]
        regions = tuple(one for one in REGIONS if one not in self.dark)
        return Seen(tuple(seen), tuple(sorted(self.dark)), regions, REGION, self.home)

    def mark(self, thing: Thing, moment: float | None) -> None:
        self.touched.append(thing.id)
        if thing.id in self.refuses or thing.id not in self.things:
            raise AwsRefused(service="ec2", operation="Tag", target=thing.id, code="Denied", why="no")
        self.things[thing.id] = dataclasses.replace(self.things[thing.id], marked=moment)

    def remove(self, thing: Thing) -> None:
        self.touched.append(thing.id)
        if thing.id in self.refuses:
            raise AwsRefused(service="ec2", operation="End", target=thing.id, code="Denied", why="no")
        now = self.things.get(thing.id)
        if now is not None and thing.id not in self.stubborn and now.etag == thing.etag:
            del self.things[thing.id]

    def gone(self, thing: Thing) -> bool:
        now = self.things.get(thing.id)
        return now is None or now.run != thing.run

    def locks(self, things: Sequence[Thing]) -> list[Thing]:
        return [one for one in self.things.values() if one.kind == "lock"]


@dataclass
class Server:
    """Flow runs by id."""

    runs: dict[str, KnownRun]
    away: bool = False
    account: Account | None = None
    """Where a pool worker ends the instances of runs that are ended; None: there is no pool worker."""
    ended: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    stubborn: set[str] = field(default_factory=set)
    """Runs whose end it refuses."""

    @classmethod
    def with_states(cls, **states: str) -> Server:
        return cls({run: known(run, state) for run, state in states.items()})

    def read(self, ids: Iterable[str]) -> Mapping[str, KnownRun]:
        self._answer()
        return {run: self.runs[run] for run in ids if run in self.runs}

    def active(self) -> list[KnownRun]:
        self._answer()
        return [run for run in self.runs.values() if run.state not in FINAL]

    def pools(self) -> frozenset[str]:
        self._answer()
        return frozenset({POOL})

    def end(self, run: str, why: str) -> None:
        self._answer()
        if run in self.stubborn:
            raise ConnectionError("refused")
        self.ended.append(run)
        for one in list(self.account.things.values()) if self.account else []:
            if one.kind == "instance" and one.run == run and self.account:
                del self.account.things[one.id]

    def settle(self, run: str, why: str) -> None:
        self._answer()
        self.settled.append(run)

    def _answer(self) -> None:
        if self.away:
            raise ConnectionError("no answer")


def known(run: str, state: str, *, since: float = NOW - 9_000, account: str = "default", **more: Any) -> KnownRun:
    return KnownRun(run, f"name of {run}", state, state.title(), since, account, **more)


@dataclass
class Clock:
    """Time that passes only when somebody sleeps."""

    at: float = NOW

    def __call__(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
