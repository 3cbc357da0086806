"""Who answers, and every draw of chance that it makes: hashes, so that the same conversation gets the same answer anywhere."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

PERSONAS = {"chemist": 0.94, "student": 0.6, "public": 0.75}
"""By name, the share of facts that each gets right."""


@dataclass(frozen=True)
class Mind:
    """A persona with a seed. Two minds that are equal answer equally."""

    persona: str
    accuracy: float
    seed: int = 0

    def chance(self, *about: object) -> float:
        """A number from 0 up to 1 that depends on the mind and on `about`, and on nothing else."""
        text = "\x1f".join(str(part) for part in (self.persona, self.seed, *about))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64

    def knows(self, *fact: object) -> bool:
        """Whether this fact is one of the share that the mind gets right."""
        return self.chance("knows", *fact) < self.accuracy

    def pick(self, options: Sequence[T], *about: object) -> T:
        """One of `options`."""
        return options[int(self.chance("pick", *about) * len(options))]
