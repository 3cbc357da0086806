"""A provider with a token budget that sixteen workers share, for an hour of virtual time.

What is the product's: the slots of each worker and their rounds (`bootstrap.slots`), fed as `bootstrap.work` feeds them. Models are
the provider (a bucket of tokens that holds a minute's budget) and Inspect (calls of a job one after the other; a refused call waits
3 s, 6 s, 12 s and so on, plus up to 3 s, and is tried again). Jobs are endless: nothing but the slots keeps a call back.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bootstrap.slots import Round, Slots, first_slots
from bootstrap.work import BEAT_SECONDS
from fleet.evals.forecast import DOUBLE_EVERY
from tests.bench.figures import Figure

WORKERS, MOST, CPUS = 16, 32, 16
HOUR = 3600.0
TOKENS, TOKENS_SPREAD = 2_000.0, 0.7
"""Of a call: mean, and sigma of the lognormal."""
ANSWER_S, ANSWER_SPREAD = 8.0, 0.6
"""Likewise, of a call's seconds."""
THINK_S = 1.0
"""Between two calls of a job, on average: tools, scoring."""
REFUSAL_S = 0.3
FIRST_WAIT_S, JITTER_S = 3.0, 3.0
"""Inspect's own waits: doubled with each refusal of the same call, plus up to so much."""
BOOT_SPREAD_S = 60.0
"""Within which the workers come up."""
MINUTE = 60.0
SEEDS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Case:
    """One provider, and jobs of one kind."""

    name: str
    carries: float
    """Jobs at a time that the budget is good for."""
    calls: int = 8
    """Of a job, on average."""
    settled: int = 0
    """Where the instances of an earlier run had settled; 0: there was none."""
    changes: Sequence[tuple[float, float]] = ()
    """When the budget becomes which share of what it was at first."""


BUDGETS = (Case("64", 64), Case("160", 160), Case("320", 320))
"""What the figure counts: an eighth, a third and two thirds of what the fleet could have at work."""
OTHERS = (
    Case("64, second run", 64, settled=4),
    Case("halved for 20 min", 160, changes=((1200.0, 0.5), (2400.0, 1.0))),
    Case("jobs of 6 min", 160, calls=40),
    Case("24 jobs", 24),
)
"""Shown beside it: begun where the last run had settled, and where the slots can't follow so quickly or so far."""


@dataclass(slots=True)
class Provider:
    """Tokens that come at a rate, and a bucket of them."""

    rate: float
    changes: list[tuple[float, float]]
    most: float = field(init=False)
    offered: float = field(init=False)
    """Tokens that it has had to give."""
    _tokens: float = field(init=False)
    _at: float = 0.0

    def __post_init__(self) -> None:
        self._tokens = self.most = self.offered = MINUTE * self.rate

    def takes(self, now: float, tokens: float) -> bool:
        """Whether it answers a call of so many tokens."""
        while self.changes and self.changes[0][0] <= now:
            at, rate = self.changes.pop(0)
            self.pass_by(at)
            self.rate, self.most = rate, MINUTE * rate
            self._tokens = min(self._tokens, self.most)
        self.pass_by(now)
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True

    def pass_by(self, now: float) -> None:
        """Let the time come."""
        more = (now - self._at) * self.rate
        self.offered += more
        self._tokens, self._at = min(self.most, self._tokens + more), now


@dataclass(slots=True)
class Worker:
    """As much of `bootstrap.work.Work` as moves slots."""

    slots: Slots
    running: int = 0
    round: Round = field(default_factory=Round)
    doubles_at: float = 0.0


@dataclass(slots=True)
class Job:
    """A job in flight."""

    worker: Worker
    left: int
    refused: bool = False


@dataclass(slots=True)
class Fleet:
    """Workers on a virtual clock. `play` it once."""

    case: Case
    chance: Random
    calls: int = 0
    refused: int = 0
    used: float = 0.0
    """Tokens of the calls that were answered."""
    _events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)
    _provider: Provider = field(init=False)

    def play(self) -> tuple[float, float]:
        """An hour; the share of the budget that was of use, and the share of calls that were refused."""
        rate = self.case.carries / (ANSWER_S + THINK_S) * TOKENS
        self._provider = Provider(rate, [(at, share * rate) for at, share in self.case.changes])
        for _ in range(WORKERS):
            up = self.chance.uniform(0, BOOT_SPREAD_S)
            worker = Worker(first_slots(MOST, cpus=CPUS, settled=self.case.settled), doubles_at=up + DOUBLE_EVERY)
            self._at(up, self._begin, worker)
        while self._events and self._events[0][0] <= HOUR:
            now, _, act, arguments = heapq.heappop(self._events)
            act(now, *arguments)
        self._provider.pass_by(HOUR)
        return self.used / self._provider.offered, self.refused / self.calls

    def _at(self, when: float, act: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (when, next(self._count), act, arguments))

    def _begin(self, now: float, worker: Worker) -> None:
        self._take_jobs(now, worker)
        self._at(now + BEAT_SECONDS, self._beat, worker)

    def _beat(self, now: float, worker: Worker) -> None:
        """As `Work._grow` and `Work._judge_round`."""
        if now >= worker.doubles_at:
            worker.doubles_at = now + DOUBLE_EVERY
            if worker.running >= worker.slots.now:
                worker.slots = worker.slots.after_full_use()
        if worker.running > worker.slots.now:
            worker.round = Round()
        else:
            worker.round.pass_by(BEAT_SECONDS, worker.running)
            if (share := worker.round.share) is not None:
                full = worker.running >= worker.slots.now
                worker.slots = worker.slots.after_round(share, full=full, draw=self.chance.random())
                worker.round = Round()
        self._take_jobs(now, worker)
        self._at(now + BEAT_SECONDS, self._beat, worker)

    def _take_jobs(self, now: float, worker: Worker) -> None:
        for _ in range(worker.slots.free(worker.running)):
            worker.running += 1
            calls = max(1, round(self.case.calls * (0.5 + self.chance.expovariate(2))))
            self._call(now, Job(worker, calls), self._draw(TOKENS, TOKENS_SPREAD), 0)

    def _call(self, now: float, job: Job, tokens: float, tries: int) -> None:
        self.calls += 1
        if self._provider.takes(now, tokens):
            self.used += tokens
            self._at(now + self._draw(ANSWER_S, ANSWER_SPREAD), self._answered, job)
            return
        self.refused += 1
        wait = FIRST_WAIT_S * 2**tries + self.chance.uniform(0, JITTER_S)
        job.worker.round.wait(wait)
        if (slots := job.worker.slots.after_rate_limit()) != job.worker.slots:
            job.worker.slots, job.worker.round = slots, Round()
        self._at(now + REFUSAL_S + wait, self._call, job, tokens, tries + 1)

    def _answered(self, now: float, job: Job) -> None:
        job.left -= 1
        if job.left:
            think = self.chance.expovariate(1 / THINK_S)
            self._at(now + think, self._call, job, self._draw(TOKENS, TOKENS_SPREAD), 0)
            return
        job.worker.running -= 1
        job.worker.slots = job.worker.slots.after_clean_job()
        self._take_jobs(now, job.worker)

    def _draw(self, mean: float, spread: float) -> float:
        return self.chance.lognormvariate(math.log(mean) - spread * spread / 2, spread)


def figures() -> Iterator[Figure]:
    """The mean over the budgets, once a seed; other cases as parts."""
    played = {case.name: _played(case, SEEDS) for case in BUDGETS} | {
        case.name: _played(case, SEEDS[:1]) for case in OTHERS
    }
    for place, (name, target) in enumerate((("goodput", 0.9), ("refused", 0.05))):
        values = {case: [result[place] for result in results] for case, results in played.items()}
        yield Figure(
            f"ratelimit.{name}",
            tuple(statistics.fmean(values[case.name][number] for case in BUDGETS) for number in range(len(SEEDS))),
            target,
            at_least=name == "goodput",
            parts={case: statistics.median(each) for case, each in values.items()},
        )


def _played(case: Case, seeds: Sequence[int]) -> list[tuple[float, float]]:
    return [Fleet(case, Random(seed)).play() for seed in seeds]  # noqa: S311  no secret
