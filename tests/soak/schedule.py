"""Which faults strike a soak, and when: a pure function of the seed, so that a storm can be repeated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Target = TypeVar("Target")


class Kind(StrEnum):
    """What happens."""

    KILL_INSTANCE = "an instance dies without a word"
    INTERRUPT = "EC2 takes a spot instance back"
    KILL_WORKER = "a fleet worker is killed"
    KILL_RUNNER = "a runner is killed"
    KILL_CONTROLLER = "the controller is killed, and the request made again"
    KILL_POOL_WORKER = "the pool worker is killed"
    THROTTLE = "AWS answers that it is asked too often"
    LOST_ANSWER = "AWS does as asked and answers 500"
    SLOW = "AWS takes seconds"
    DUPLICATE = "a job's message is delivered again"
    TRUNCATE = "a result object is cut short"


WEIGHTS = {
    Kind.KILL_INSTANCE: 5,
    Kind.INTERRUPT: 3,
    Kind.KILL_WORKER: 5,
    Kind.KILL_RUNNER: 20,
    Kind.KILL_CONTROLLER: 2,
    Kind.KILL_POOL_WORKER: 2,
    Kind.THROTTLE: 25,
    Kind.LOST_ANSWER: 20,
    Kind.SLOW: 10,
    Kind.DUPLICATE: 10,
    Kind.TRUNCATE: 4,
}
"""How often each kind comes, relative to the others: what costs a boot comes seldom, what costs a call often."""

FIRST, LAST = 0.02, 0.9
"""Between these shares of finished jobs faults strike: the run has begun, and there is work left that can go wrong."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault."""

    kind: Kind
    at: float
    """Share of finished jobs from which it is due."""
    draw: float
    """Chooses the target among those there are then, 0 to 1."""


def storm(seed: int, count: int) -> list[Strike]:
    """`count` faults in the order in which they strike, each kind among them at least once. ValueError: too few for that."""
    if count < len(Kind):
        raise ValueError(f"{count} faults can't be of {len(Kind)} kinds")
    chance = random.Random(seed)  # noqa: S311 - a repeatable storm, not a secret
    kinds = [*Kind, *chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count - len(Kind))]
    chance.shuffle(kinds)
    moments = sorted(chance.uniform(FIRST, LAST) for _ in kinds)
    return [Strike(kind, at, chance.random()) for kind, at in zip(kinds, moments, strict=True)]


def chosen(targets: Sequence[Target], draw: float) -> Target:
    """The target that a draw chooses."""
    return targets[min(int(draw * len(targets)), len(targets) - 1)]
