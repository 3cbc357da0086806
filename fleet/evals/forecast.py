"""How long a fleet of each size would take for jobs of expected durations, what it would bill, and which size to launch. Pure.

A model of the product as it is: instances boot, begin with some slots and double them, take the longest job first, and end once no
job is left for them. What nobody can expect, such as rate limits, isn't in it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FIRST_SLOTS = 10
"""Jobs at a time with which an instance starts; it adapts from there."""
PER_CPU = 4
"""Jobs at a time for each vCPU, at most: a job mostly waits for a model, and above this many a CPU is the bottleneck."""
DOUBLE_EVERY = 20.0
"""Seconds with every slot in use before there are twice as many: a provider's refusals come within a few."""
BOOT_S = 90.0
"""Seconds from a launch to the first job, about: EC2 and the image take half of it, the job environment the rest."""
LAST_S = 12.0
"""Seconds that an instance stays when no job is left for it (`bootstrap.work.QUIET_SECONDS` and a poll)."""
SPOT_LOSS = 0.05
"""Share of spot instances that are taken back in an hour: an assumption, and rather high for most types."""
TOLERANCE = 0.10
"""By how much a bill may be above the cheapest fleet's for the sake of time."""
WORTH_S = 3600.0
"""Instance-seconds in all that aren't worth a smaller fleet than is launched without history."""
SLOWEST = 2.0
"""How many times as long as the usual fleet's a smaller one's time may be: nobody waits for a day to save a tenth."""
AS_FAST = 1.02
"""Fleets within this factor take the same time: the smaller one does."""


def most_slots(concurrency: int, cpus: Iterable[int]) -> int:
    """Jobs at a time on one instance, at most: what a person allows, and what the smallest of its possible `cpus` can do."""
    return max(1, min([concurrency, *(PER_CPU * each for each in cpus)]))


def workers_for(open_jobs: int, *, max_workers: int, concurrency: int) -> int:
    """How many instances are worth launching: as many as can each fill their first slots, at most `max_workers`."""
    if open_jobs == 0:
        return 0
    return max(1, min(max_workers, math.ceil(open_jobs / min(FIRST_SLOTS, concurrency))))


@dataclass(frozen=True, slots=True)
class FleetModel:
    """What an instance of a fleet is like."""

    most: int
    """Jobs at a time, at most."""
    settled: int = 0
    """Jobs at a time with which it begins, where the last run had settled; 0: not known, so that it doubles."""
    loss: float = 0.0
    """Share of instances that are lost in an hour."""

    def slot_times(self) -> list[float]:
        """Seconds from the launch at which each of an instance's slots is there."""
        now = min(self.settled or FIRST_SLOTS, self.most)
        times, at = [BOOT_S] * now, BOOT_S
        while not self.settled and now < self.most:
            at += DOUBLE_EVERY
            more = min(now, self.most - now)
            times += [at] * more
            now += more
        return times


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a fleet of one size would come to."""

    instances: int
    seconds: float
    """From the launch to the last result."""
    billed: float
    """Instance-seconds."""


def forecast(seconds: Sequence[float], instances: int, model: FleetModel) -> Forecast:
    """What so many instances would make of jobs that take `seconds`, handed out longest first to whichever slot is free.

    Lost instances lengthen the bill by what is done again: half a job in each slot, and another boot.
    """
    slots = [(at, instance) for instance in range(instances) for at in model.slot_times()]
    heapq.heapify(slots)
    last = [0.0] * instances
    for job in sorted(seconds, reverse=True):
        at, instance = slots[0]
        last[instance] = max(last[instance], at + job)
        heapq.heapreplace(slots, (at + job, instance))
    end = max(last, default=0.0)
    billed = sum(min(max(one, BOOT_S) + LAST_S, max(end, BOOT_S)) for one in last)
    work = sum(seconds)
    again = BOOT_S + (sum(job * job for job in seconds) / (2 * work) if work else 0.0)
    return Forecast(instances, end, billed * (1 + model.loss * again / 3600))


def forecasts(seconds: Sequence[float], max_workers: int, model: FleetModel, *, usual: int) -> tuple[Forecast, ...]:
    """Fleets of several sizes, the smallest first, up to `max_workers` and to an instance for each job; and the usual one."""
    sizes = {*_sizes(min(max_workers, len(seconds))), usual}
    return tuple(forecast(seconds, size, model) for size in sorted(sizes))


def knee(fleets: Sequence[Forecast], *, usual: int) -> Forecast:
    """The fleet to launch: the usual one, if it wastes next to nothing.

    Else, of those that don't take `SLOWEST` times as long and whose bill is within `TOLERANCE` of the cheapest of them, the
    smallest that is as fast as any.
    """
    known = next(one for one in fleets if one.instances == usual)
    if known.billed <= min(one.billed for one in fleets) + WORTH_S:
        return known
    quick = [one for one in fleets if one.seconds <= known.seconds * SLOWEST]
    cheapest = min(one.billed for one in quick)
    within = [one for one in quick if one.billed <= cheapest * (1 + TOLERANCE)]
    fastest = min(one.seconds for one in within)
    return min((one for one in within if one.seconds <= fastest * AS_FAST), key=lambda one: one.instances)


def launched(seconds: Sequence[float], max_workers: int, model: FleetModel) -> Forecast:
    """The fleet that would be launched: the `knee`, without a look at every size where the usual one is near the least."""
    usual = workers_for(len(seconds), max_workers=max_workers, concurrency=model.most)
    known = forecast(seconds, usual, model)
    if known.billed <= sum(seconds) / model.most + WORTH_S:
        return known
    return knee(forecasts(seconds, max_workers, model, usual=usual), usual=usual)


def _sizes(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24 … and the largest itself: steps of a third to a half."""
    powers = [2**power for power in range(most.bit_length())]
    between = [3 * power for power in powers]
    return sorted({size for size in (*powers, *between, most) if 0 < size <= most})
