"""What a fleet bills over what its work needs: the product's own decisions, played on a virtual clock.

5,000 one-sample jobs, 24 instances of 32 slots at most, 5% of the instances lost an hour. What is the product's: expectations from
a history, the order of jobs, the fleet's size, each instance's slots, when an instance ends, what is launched in place of lost
ones. What is modelled: instances boot, a queue hands out jobs roughly in order, an instance is taken back at any moment.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.slots import Slots, first_slots
from bootstrap.work import POLL_SECONDS, is_over
from fleet.aws.queues import BATCH, Depth
from fleet.evals.documents import EnvironmentSpec, EvalManifest
from fleet.evals.durations import DurationHistory, Expectation, after_run, expected_jobs, sample_key
from fleet.evals.forecast import BOOT_S, DOUBLE_EVERY, FleetModel, forecasts, knee, workers_for
from fleet.evals.plan import TaskPlan, make_manifest
from fleet.evals.progress import RunTally, WorkerFacts, WorkerPhase, WorkerTally, tally_of
from fleet.evals.request import EvalRequest, ModelSpec, TaskSpec
from fleet.evals.sizing import sending_order
from fleet.evals.steps import TopUp, next_step
from tests.bench.figures import Figure

JOBS, INSTANCES, SLOTS = 5_000, 24, 32
LOSS = 0.05
"""Of the instances, an hour."""
OFF = 0.3
"""How far expectations are off: standard deviation of the logarithm of a job's duration over the expected one."""
SEEDS = range(5)
BOOT_SPREAD_S = 10.0
RECEIVE_S = 0.05
DISORDER = 50
"""Places by which a message may come too early or too late: a standard queue keeps its order roughly."""
LOOK_S = 5.0
"""Seconds after which the controller sees that an instance is lost."""
STOP_S = 5.0
"""Seconds from the last result to the end of the instances that are still there."""
IDLE_S = 60.0
"""The fleet's option `idle_seconds`."""

Chance = random.Random
DISTRIBUTIONS: dict[str, Callable[[Chance], float]] = {
    "lognormal": lambda chance: min(chance.lognormvariate(math.log(240), 1.0), 2_400),
    "pareto": lambda chance: min(180 * chance.paretovariate(1.6), 2_400),
    "bimodal": lambda chance: max(chance.gauss(60, 10) if chance.random() < 0.88 else chance.gauss(1_500, 300), 5),
}
"""Seconds of a job: heavy tails up to 40 minutes; 88% of a minute and 12% of 25 minutes. The plain policy bills about
twice the ideal then."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run came to, in seconds: of all instances together, and from launch to last result."""

    billed: float
    took: float


@dataclass(slots=True)
class Instance:
    """An instance on its way."""

    launched: float
    slots: Slots
    running: dict[str, None] = field(default_factory=dict)
    """A set that keeps its order: a seed makes the same run each time."""
    up: bool = False
    idle_from: float = 0.0
    ended: float | None = None
    lost: bool = False
    jobs: int = 0


@dataclass(slots=True)
class Fleet:
    """One run on a virtual clock. `play` it once."""

    seconds: dict[str, float]
    """What each job takes, in the order in which they are sent."""
    manifest: EvalManifest
    chance: Chance
    slots: Callable[[], Slots]
    doubling: bool
    idle: Callable[[float, Depth, bool], bool]
    """Whether an instance ends that is idle for so long, and has had a job or not."""
    linger: float
    """Seconds for which instances stay when the run is over."""
    now: float = 0.0
    instances: list[Instance] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    replaced: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    _queue: list[tuple[float, str]] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)

    def play(self, launches: Sequence[float]) -> Bill:
        """Launch an instance at each of these seconds, and let them work until each job is done."""
        self._places = {job: place for place, job in enumerate(self.seconds)}
        for job in self.seconds:
            self._send(job)
        for at in launches:
            self._at(at, self._launch)
        while len(self.done) < len(self.seconds):
            if not self._events:
                raise SystemExit(f"{len(self.seconds) - len(self.done)} jobs were never done")
            self.now, _, event = heapq.heappop(self._events)
            event()
        for one in self.instances:
            if one.ended is None:
                one.ended = self.now + (self.linger if one.running or not one.up else max(0.0, self._left(one)))
        return Bill(sum(max((one.ended or 0) - one.launched, 60) for one in self.instances), self.now)

    def _send(self, job: str) -> None:
        """Put a job into the queue, or back: a message's place goes by when it was sent first."""
        heapq.heappush(self._queue, (self._places[job] + self.chance.uniform(-1, 1) * DISORDER, job))

    def _left(self, one: Instance) -> float:
        return one.idle_from + self.linger - self.now

    def _at(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), event))

    def _launch(self) -> None:
        one = Instance(self.now, self.slots())
        self.instances.append(one)
        if sum(it.ended is None for it in self.instances) > INSTANCES:
            raise SystemExit("more instances than max_workers")
        boot = self.now + BOOT_S + self.chance.uniform(-1, 1) * BOOT_SPREAD_S
        self._at(boot, lambda: self._up(one))
        self._at(self.now + self.chance.expovariate(LOSS / 3600), lambda: self._lose(one))

    def _up(self, one: Instance) -> None:
        if one.ended is None:
            one.up, one.idle_from = True, self.now
            self._take(one)
            if self.doubling:
                self._at(self.now + DOUBLE_EVERY, lambda: self._double(one))

    def _take(self, one: Instance) -> None:
        """A call for some jobs; another follows while there are free slots."""
        if one.ended is not None:
            return
        for _ in range(min(one.slots.free(len(one.running)), BATCH, len(self._queue))):
            _, job = heapq.heappop(self._queue)
            one.running[job] = None
            self._at(self.now + self.seconds[job], lambda job=job: self._finish(one, job))  # type: ignore[misc]
        if one.slots.free(len(one.running)) and self._queue:
            self._at(self.now + RECEIVE_S, lambda: self._take(one))
        elif not one.running:
            self._at(self.now + POLL_SECONDS, lambda: self._poll(one))

    def _poll(self, one: Instance) -> None:
        if one.ended is not None or one.running:
            return
        if self._queue:
            self._take(one)
        elif self.idle(self.now - one.idle_from, self._depth(), one.jobs > 0):
            one.ended = self.now
        else:
            self._at(self.now + POLL_SECONDS, lambda: self._poll(one))

    def _depth(self) -> Depth:
        leased = sum(len(one.running) for one in self.instances if one.ended is None)
        return Depth(waiting=len(self._queue), leased=leased, delayed=0)

    def _finish(self, one: Instance, job: str) -> None:
        if one.ended is not None:
            return  # it was lost meanwhile
        del one.running[job]
        if job in self.done:
            raise SystemExit(f"job {job} was done twice")
        self.done.add(job)
        one.jobs += 1
        one.idle_from = self.now
        one.slots = one.slots.after_clean_job()
        self._take(one)

    def _double(self, one: Instance) -> None:
        if one.ended is None and not one.slots.level_known and one.slots.now < one.slots.most:
            if len(one.running) >= one.slots.now:
                one.slots = one.slots.after_full_use()
                self._take(one)
            self._at(self.now + DOUBLE_EVERY, lambda: self._double(one))

    def _lose(self, one: Instance) -> None:
        """EC2 announces that it takes the instance back: it gives its jobs back at once."""
        if one.ended is None:
            one.ended, one.lost = self.now, True
            for job in one.running:
                self._send(job)
            one.running.clear()
            for other in self.instances:
                if other.up and other.ended is None:
                    self._take(other)
            self._at(self.now + LOOK_S, self._look)

    def _look(self) -> None:
        tally = tally_of(self.manifest)
        tally.done = set(self.done)
        said = {
            str(number): WorkerTally(jobs=one.jobs, reason="interrupted" if one.lost else "idle" if one.ended else "")
            for number, one in enumerate(self.instances)
        }
        facts = [self._facts(str(number), one) for number, one in enumerate(self.instances)]
        step = next_step(RunTally({self.manifest.eval_id: tally}, said), facts, replaced=self.replaced)
        if isinstance(step, TopUp):
            self.replaced += step.count
            for _ in range(step.count):
                self._launch()

    def _facts(self, run: str, one: Instance) -> WorkerFacts:
        phase = WorkerPhase.ENDED if one.ended is not None else WorkerPhase.WORKING
        return WorkerFacts(run, run, phase, f"i-{run}", "", self.now - one.launched)


def manifest_of(jobs: int) -> EvalManifest:
    """An eval of so many one-sample jobs."""
    request = EvalRequest(tasks=[TaskSpec(name="t")], models=[ModelSpec(name="m")], samples_per_job=1)
    plan = TaskPlan(
        task=request.tasks[0],
        model=request.models[0],
        log=Path("plan.eval"),
        task_name="t",
        eval_config={},
        sample_ids=list(range(jobs)),
        digests=[f"{number:016x}" for number in range(jobs)],
        epochs=1,
        splittable=True,
        needs_docker=False,
    )
    return make_manifest(plan, request, EnvironmentSpec(python="3.11", lock=""), slots=SLOTS)


def ours(
    manifest: EvalManifest, seconds: Sequence[float], history: DurationHistory, chance: Chance
) -> tuple[Bill, int]:
    """A run as the product does it, with what earlier runs have left, and how many instances it launched."""
    expected = expected_jobs(manifest, Expectation(history.seconds, history.slots))
    jobs = [job.job for job in manifest.jobs]
    order = sending_order({manifest.eval_id: jobs}, {manifest.eval_id: expected})
    took = dict(zip(jobs, seconds, strict=True))
    workers = workers_for(len(jobs), max_workers=INSTANCES, concurrency=SLOTS)
    if expected:
        model = FleetModel(SLOTS, history.slots, LOSS)
        workers = knee(forecasts(list(expected.values()), INSTANCES, model, usual=workers), usual=workers).instances
    fleet = Fleet(
        {job: took[job] for _, job in order},
        manifest,
        chance,
        slots=lambda: first_slots(SLOTS, cpus=16, settled=history.slots),
        doubling=True,
        idle=lambda idle, depth, worked: is_over(idle, depth, IDLE_S, has_worked=worked),
        linger=STOP_S,
    )
    return fleet.play([0.0] * workers), workers


def baseline(manifest: EvalManifest, seconds: Sequence[float], chance: Chance) -> Bill:
    """Ten instances, as many again after five minutes, and the rest after ten; first in, first out; 300 s idle at the end."""
    took = {job.job: one for job, one in zip(manifest.jobs, seconds, strict=True)}
    fleet = Fleet(
        took,
        manifest,
        chance,
        slots=lambda: Slots(most=SLOTS, now=10),
        doubling=False,
        idle=lambda idle, *_: idle >= 300,
        linger=300,
    )
    return fleet.play([0.0] * 10 + [300.0] * 10 + [600.0] * (INSTANCES - 20))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One set of jobs, run three ways."""

    ideal: float
    """All slots in use for all of the time: instance-seconds."""
    plain: Bill
    known: Bill
    """The product's, with a history of the same samples."""
    workers: int
    """Instances that it launched then."""
    cold: Bill
    """The product's, without one."""

    def parts(self) -> dict[str, float]:
        """With history, as a person reads it."""
        return {
            "": self.known.billed / self.ideal,
            " time": self.known.took / self.plain.took,
            " instances": self.workers,
            " plain": self.plain.billed / self.ideal,
        }

    def cold_parts(self) -> dict[str, float]:
        """Without history."""
        return {"": self.cold.billed / self.plain.billed, " time": self.cold.took / self.plain.took}


def compare(manifest: EvalManifest, draw: Callable[[Chance], float], seed: int) -> Comparison:
    """Jobs of one distribution, and what each way makes of them."""
    chance = Chance(seed)
    seconds = [draw(chance) for _ in manifest.jobs]
    before = {
        sample_key(ref.id, ref.digest): one * math.exp(chance.gauss(0, OFF))
        for job, one in zip(manifest.jobs, seconds, strict=True)
        for ref in job.samples
    }
    history = after_run(DurationHistory(slots=SLOTS), before)
    known, workers = ours(manifest, seconds, history, Chance(seed))
    cold, _ = ours(manifest, seconds, DurationHistory(), Chance(seed))
    return Comparison(sum(seconds) / SLOTS, baseline(manifest, seconds, Chance(seed)), known, workers, cold)


def figures() -> Iterator[Figure]:
    """The bill over the ideal with history, and over the plain policy's without; each of the distribution for which it is worst."""
    manifest = manifest_of(JOBS)
    found = {name: [compare(manifest, draw, seed) for seed in SEEDS] for name, draw in DISTRIBUTIONS.items()}
    warm = {name: tuple(one.known.billed / one.ideal for one in them) for name, them in found.items()}
    # What takes longer than 1.1 times the plain policy's time counts as much worse as it is slower.
    cold = {
        name: tuple(one.cold.billed / one.plain.billed + max(0.0, one.cold.took / one.plain.took - 1.1) for one in them)
        for name, them in found.items()
    }
    yield Figure("cost.billed_vs_ideal", worst(warm), 1.15, parts=medians(found, Comparison.parts))
    yield Figure("cost.cold_vs_baseline", worst(cold), 0.9, parts=medians(found, Comparison.cold_parts))


def worst(found: dict[str, tuple[float, ...]]) -> tuple[float, ...]:
    """The values of the distribution for which it went worst."""
    return max(found.values(), key=statistics.median)


def medians(found: dict[str, list[Comparison]], parts: Callable[[Comparison], dict[str, float]]) -> dict[str, float]:
    """Each part of each distribution by its median over the seeds."""
    return {
        f"{name}{part}": statistics.median(parts(one)[part] for one in them)
        for name, them in found.items()
        for part in parts(them[0])
    }
