"""Unseeded randomness while a task is built, made the same in every process.

A dataset that shuffles its samples or choices without a seed means "any order will do"; spread over processes it has to be
one order, or a job would not find the samples that were planned. So the unseeded order is a fixed one. Randomness while
samples run is left alone.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

_SEED = 20_240_501
"""Any number; another one is another order, so it never changes."""


@contextlib.contextmanager
def settled_chance() -> Iterator[None]:
    """Within, the global generators and every unseeded `random.Random()` go the same way in each process."""
    numpy_random = _numpy_random()
    before, numpy_before = random.getstate(), numpy_random.get_state() if numpy_random else None
    drawn = count(_SEED)
    free: Any = random.Random
    within = True

    class Settled(free):  # type: ignore[misc]
        def __init__(self, seed: Any = None) -> None:
            # A module that is imported meanwhile may keep this class: afterwards it is as free as the real one.
            super().__init__(next(drawn) if seed is None and within else seed)

    random.seed(_SEED)
    if numpy_random:
        numpy_random.seed(_SEED)
    random.Random = Settled  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        within = False
        random.Random = free  # type: ignore[misc]
        random.setstate(before)
        if numpy_random:
            numpy_random.set_state(numpy_before)


def scatter() -> None:
    """After a fork: runners must not all draw the same numbers. Python's own generator does this by itself."""
    if numpy_random := _numpy_random():
        numpy_random.seed()


def _numpy_random() -> Any:
    try:
        import numpy.random
    except ImportError:
        return None
    return numpy.random
