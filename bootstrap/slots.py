"""How many jobs run at a time on this instance, by what a provider refuses. Pure.

Until the first signal of any kind the number doubles on time alone, as TCP's slow start does: an instance whose jobs take an hour
must not wait for them to use what is paid for. The first rate limit halves it. From then on rounds decide: Inspect waits before it
tries a refused call again, and the share of the slots' time that goes into such waits says how many slots too many there are. What
is left of the slots without it is the level that the provider carries; below it the number comes back quickly, beyond it slowly at
first, as in CUBIC (RFC 9438). All instances of a fleet see the same provider, so that each decides alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fleet.aws.queues import Depth
from fleet.evals.forecast import FIRST_SLOTS, most_slots

ROUND_S = 30.0
"""Seconds of a round. It begins when no more jobs run than there are slots: before, it would judge the slots of earlier."""
TOO_MUCH = 0.02
"""Share of the slots' time in waits above which there are too many."""
LITTLE = 0.01
"""The same below which there may be more."""
BELOW = 0.2
"""By which share a cut goes further than the waits say: the provider's bucket is empty by then and has to fill."""
DEEPEST = 0.25
"""What one cut leaves, at least."""
BACK = 0.3
"""Share of the way back to the level that a quiet round goes."""
NEAR = 0.05
"""How near to the level counts as there."""
PROBE, FASTEST_PROBE = 0.01, 0.1
"""Beyond the level: share by which the first quiet round adds, the second twice that and so on, and the most."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The number now, within [1, most]."""

    most: int
    now: int
    level_known: bool = False
    """Whether something has said how many are right: a rate limit, a shortage, or an earlier run. Then time alone adds no more."""
    level: float | None = None
    """How many the provider carries, as far as is known; None: it has refused nothing yet."""
    probes: int = 0
    """Quiet rounds since that level was reached."""

    def after_rate_limit(self) -> Slots:
        """Half, at the first one; later ones are judged by the round."""
        if self.level is not None:
            return self
        now = max(1, self.now // 2)
        return replace(self, now=now, level=float(now), level_known=True)

    def after_round(self, share: float, *, full: bool, draw: float) -> Slots:
        """What follows from a round in which this share of the slots' time went into waits. `full`: all slots are in use.

        `draw` (0 to 1, by chance) rounds: with few slots an instance, each of a large fleet going one up would be far too many.
        """
        if self.level is None:
            return self
        if share > TOO_MUCH:
            level, wanted, probes = self.now * (1 - min(share, 1.0)), self.now * max(DEEPEST, 1 - share - BELOW), 0
        elif share >= LITTLE or not full:
            return self
        elif self.now < self.level * (1 - NEAR):
            level, wanted, probes = self.level, self.now + BACK * (self.level - self.now), self.probes
        else:
            probes = self.probes + 1
            level, wanted = self.level, self.now * (1 + min(FASTEST_PROBE, PROBE * probes))
        now = max(1, min(self.most, math.floor(wanted + draw)))
        return replace(self, now=now, level=level, probes=probes)

    def after_clean_job(self) -> Slots:
        """One more, while the provider has refused nothing."""
        return self if self.level is not None else replace(self, now=min(self.most, self.now + 1))

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
        """How many jobs more may be taken; running jobs are never stopped for a cut."""
        return max(0, self.now - running)


@dataclass(slots=True)
class Round:
    """What the slots have met since they were changed last."""

    waited: float = 0.0
    """Seconds that were, or will be, waited before refused calls are tried again, each as a share of its job."""
    busy: float = 0.0
    """Seconds that slots were in use, all together."""
    seconds: float = 0.0

    def wait(self, seconds: float) -> None:
        """A refused call waits so long. No wait says more than that its sample is blocked for this round.

        Inspect's waits double up to half an hour: booked whole, one sample's would starve all others of slots.
        """
        self.waited += min(seconds, ROUND_S)

    def pass_by(self, seconds: float, running: int) -> None:
        """So many seconds with so many jobs at work."""
        self.seconds += seconds
        self.busy += seconds * running

    @property
    def share(self) -> float | None:
        """Of the slots' time, what went into waits; None: too early to say."""
        return self.waited / self.busy if self.seconds >= ROUND_S and self.busy else None


def first_slots(
    concurrency: int, *, cpus: int, jobs: Depth | None = None, fleet_size: int = 1, settled: int = 0
) -> Slots:
    """Where a worker begins: `concurrency` is what the person allows, `jobs` the work queue's depth (None: not known).

    `settled`: where the instances of the last run of these evals had settled; 0: not known. With few jobs it begins with its share
    among `fleet_size` instances, so that the first one leaves the others some. A queue that looks empty says nothing: all jobs may
    be leased by an instance that is about to go.
    """
    most = most_slots(concurrency, [cpus])
    now = min(settled or FIRST_SLOTS, most)
    if jobs is not None and jobs.waiting:
        share = math.ceil((jobs.waiting + jobs.leased) / fleet_size)
        now = min(now, jobs.waiting, share)
    return Slots(most=most, now=now, level_known=settled > 0)
