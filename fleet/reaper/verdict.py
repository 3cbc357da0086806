"""Whose a thing is and what becomes of it. Pure: facts in, a decision with its reason out; `removal` carries it out.

Three words decide over a run, in this order. A lock that holds says that its controller lives: nothing of the run is touched,
whatever Prefect says. Prefect's state says that a run is over, or waits, or is at work. Of one that is at work the lock is asked
again: a controller that was killed stays Running for Prefect, and nobody renews its lock any more. Where there is no lock, what
there is of the run says the rest: locks are taken before anything is made (`flows.prepare`).

What is nobody's is marked at the first look and removed at a later one. Until then its instances go on: they finish the jobs that
are queued, and the same request takes their results up. All of a run goes together, so that no work queue is taken from under
instances that may still live.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.reaper.things import Thing

FINAL = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
AT_WORK = frozenset({"RUNNING", "CANCELLING"})
"""Prefect's state types of a flow run that has a process. In the others it waits: for a person, a pool worker or its retry."""


GRACE_S = 1_800.0
OVERDUE_S = 600.0
STRAY_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds."""

    grace: float = GRACE_S
    """From the first look that finds a thing to be nobody's to its removal."""
    overdue: float = OVERDUE_S
    """How long ago the lock of a run expired that counts as dead: a controller whose S3 was away for a while takes it again."""
    preparing: float = 1_800.0
    """How long a run that was at work before may be at work again without a lock: it plans, and what there is of it is an earlier
    attempt's. Also how long one that was told to end may take to do so, if it has made nothing."""
    stray: float = STRAY_S
    """The age of a volume or launch template that is nobody's: a group of launches is done within minutes."""

    @classmethod
    def of(cls, grace: float) -> Patience:
        """With this grace. 0: a person has looked, and nothing is waited for but the expiry of locks."""
        return cls(grace=grace, overdue=min(OVERDUE_S, grace))


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the flow run that things belong to."""

    state: str | None
    """Prefect's state type; None: this server doesn't know the flow run."""
    said: str = ""
    """The state's name, for a person."""
    quiet: float = 0.0
    """Seconds since it came into that state."""
    evals: bool = True
    """Whether it is a run of evals, which holds locks; else a flow run on an instance of its own."""
    lock_over: float | None = None
    """Seconds since the last of its locks expired, below 0 while it holds; None: no lock names it, looked for after its things."""
    made: bool = True
    """Whether there is anything of it but locks."""
    begun: int = 1
    """How often its flow run has come to be at work: by a retry, or after a pause, more than once."""
    ours: bool = True
    """Whether a lock in this bucket, the run's own account, or a work pool of this server says that it is this deployment's."""


class Life(enum.Enum):
    """Whether somebody answers for a flow run's things."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Standing:
    """How it is with a flow run, and why that is thought."""

    life: Life
    why: str


class Act(enum.Enum):
    """What becomes of a thing."""

    KEEP = "keep"
    MARK = "mark"
    UNMARK = "unmark"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing's fate."""

    thing: Thing
    act: Act
    why: str


def standing(facts: Facts, patience: Patience) -> Standing:
    """Whether somebody answers for the things of a flow run."""
    if facts.lock_over is not None and facts.lock_over < 0:
        return Standing(Life.ALIVE, "its controller holds the eval's lock")
    if facts.lock_over is not None and facts.lock_over < patience.overdue:
        return Standing(Life.ALIVE, f"its lock expired {_ago(facts.lock_over)} ago, and may be renewed yet")
    lock = (
        "" if facts.lock_over is None else f"; nobody has renewed its lock, which expired {_ago(facts.lock_over)} ago"
    )
    if not facts.ours:
        return Standing(
            Life.UNKNOWN, "another deployment's, as far as can be seen: no lock in this bucket names its run"
        )
    if facts.state is None:
        return Standing(Life.DEAD, f"Prefect doesn't know its flow run any more{lock}")
    if facts.state in FINAL:
        return Standing(Life.DEAD, f"its flow run is {facts.said}{lock}")
    if facts.state not in AT_WORK:
        return Standing(Life.ALIVE, f"its flow run is {facts.said}, and has yet to go on")
    if not facts.evals:
        return Standing(Life.ALIVE, f"its flow run is {facts.said}")
    if facts.lock_over is not None:
        return Standing(Life.DEAD, f"its controller is gone, though its flow run is {facts.said}{lock}")
    since = f"its flow run is {facts.said} since {_ago(facts.quiet)}"
    if facts.made and facts.begun <= 1:
        return Standing(Life.DEAD, f"its controller is gone: {since}, and holds no lock, without which nothing is made")
    if facts.quiet < patience.preparing:
        return Standing(Life.ALIVE, f"{since}, and may be preparing")
    return Standing(Life.DEAD, f"{since}, and holds no lock")


def unclaimed(instance: Thing, patience: Patience, *, now: float, ours: bool) -> Standing:
    """Whether somebody answers for an instance without a flow run: its pool worker was killed right after the launch."""
    age = now - (instance.born if instance.born is not None else now)
    if age < patience.preparing:
        return Standing(Life.ALIVE, f"it was launched {_ago(age)} ago, and its flow run may be written on it yet")
    if not ours:
        return Standing(Life.UNKNOWN, "its work pool isn't one of this Prefect server")
    return Standing(Life.DEAD, "it was launched for no flow run")


def decide(
    things: Sequence[Thing], found: Standing, patience: Patience, *, now: float, elsewhere: str = ""
) -> list[Decision]:
    """What becomes of all things of one flow run; they go together, or not yet.

    `elsewhere`: why more of the run may lie where nobody has looked; empty: it can't. Its locks say whose that is, and stay.
    """
    match found.life:
        case Life.ALIVE:
            return [Decision(one, Act.UNMARK if one.marked is not None else Act.KEEP, found.why) for one in things]
        case Life.UNKNOWN:
            return [Decision(one, Act.KEEP, found.why) for one in things]
    waits = [wait for one in things if (wait := _wait(one, patience, now)) > 0]
    if not waits:
        stays = [one for one in things if elsewhere and one.kind == "lock"]
        kept = [Decision(one, Act.KEEP, f"{found.why}; it stays: {elsewhere}") for one in stays]
        return [*(Decision(one, Act.REMOVE, found.why) for one in things if one not in stays), *kept]
    later = f"{found.why}; removed in {_ago(max(waits))} at the earliest"
    return [Decision(one, Act.MARK if one.markable and one.marked is None else Act.KEEP, later) for one in things]


def decide_stray(thing: Thing, patience: Patience, *, now: float, ours: bool) -> Decision:
    """What becomes of a volume or a launch template: by its age, whoever it was made for.

    A template is needed while its group is launched, and a volume is one's only while it is attached.
    """
    if not ours:
        return Decision(thing, Act.KEEP, "its work pool isn't one of this Prefect server")
    age = now - (thing.born if thing.born is not None else now)
    if age < patience.stray:
        return Decision(thing, Act.KEEP, f"it is {_ago(age)} old, and may be in use")
    return Decision(thing, Act.REMOVE, f"it is {_ago(age)} old, and nothing uses it")


def _wait(thing: Thing, patience: Patience, now: float) -> float:
    """Seconds that this thing has to be nobody's yet."""
    if not patience.grace:
        return 0.0
    return patience.grace if thing.known_since is None else thing.known_since + patience.grace - now


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.0f} h"
