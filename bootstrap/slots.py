"""How many jobs run at a time on this instance: additive increase, multiplicative decrease, as TCP does. Pure.

A rate limit is a signal of the provider about all that is in flight, so one halving answers a burst of them. Until the first
signal of any kind the number doubles on time alone, as TCP's slow start does: an instance whose jobs take an hour must not wait
for them to use what is paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fleet.aws.queues import Depth
from fleet.evals.forecast import FIRST_SLOTS

PER_CPU = 4
"""A job mostly waits for a model; above this many, a CPU is the bottleneck."""
HALVE_EVERY = 60.0
"""Seconds between two halvings: the first has to show before the next is judged."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The number now, within [1, most]."""

    most: int
    now: int
    halved_at: float | None = None
    """Monotonic seconds."""
    level_known: bool = False
    """Whether something has said how many are right: a rate limit, a shortage, or an earlier run. Then jobs alone add more."""

    def after_rate_limit(self, at: float) -> Slots:
        """Half, unless halved within the last `HALVE_EVERY` seconds."""
        if self.halved_at is not None and at - self.halved_at < HALVE_EVERY:
            return self
        return replace(self, now=max(1, self.now // 2), halved_at=at, level_known=True)

    def after_clean_job(self) -> Slots:
        """One more: a job went through without a rate limit."""
        return replace(self, now=min(self.most, self.now + 1))

    def after_full_use(self) -> Slots:
        """Twice as many: all were in use for a while (`DOUBLE_EVERY`), and nothing has said yet how many are right."""
        return self if self.level_known else replace(self, now=min(self.most, 2 * self.now))

    def after_shortage(self, running: int) -> Slots:
        """Half of what runs now, and for good no more than three quarters: so many jobs don't fit into this machine.

        Where none runs, nothing says how many fit: it begins again with one.
        """
        if not running:
            return replace(self, now=1, level_known=True)
        most, now = max(1, min(self.most, running * 3 // 4)), max(1, min(self.now, running // 2))
        return replace(self, most=most, now=now, level_known=True)

    def free(self, running: int) -> int:
        """How many jobs more may be taken; running jobs are never stopped for a halving."""
        return max(0, self.now - running)


def first_slots(
    concurrency: int, *, cpus: int, jobs: Depth | None = None, fleet_size: int = 1, settled: int = 0
) -> Slots:
    """Where a worker begins: `concurrency` is what the person allows, `jobs` the work queue's depth (None: not known).

    `settled`: where the instances of the last run of these evals had settled; 0: not known. With few jobs it begins with its share
    among `fleet_size` instances, so that the first one leaves the others some. A queue that looks empty says nothing: all jobs may
    be leased by an instance that is about to go.
    """
    most = max(1, min(concurrency, cpus * PER_CPU))
    now = min(settled or FIRST_SLOTS, most)
    if jobs is not None and jobs.waiting:
        share = math.ceil((jobs.waiting + jobs.leased) / fleet_size)
        now = min(now, jobs.waiting, share)
    return Slots(most=most, now=now, level_known=settled > 0)
