"""How far a run is: facts in, a snapshot out. What to do next is decided from the same facts in `steps.py`.

The objects in S3 say which jobs are finished; Prefect says how the workers are; events from the workers only fill in what a
person likes to see. Nothing here calls anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.aws.prices import Price, hourly_of
from fleet.evals.documents import EvalId, EvalManifest, JobId, WorkerEvent

INTERRUPTED_STATE = "Interrupted"
"""Name of the state in which a worker's flow run ends where EC2 takes its instance: a Completed one if the worker could give its
jobs back, else a Crashed one."""


class WorkerPhase(StrEnum):
    """Where a fleet worker is in its life."""

    LAUNCHING = "launching"
    BOOTING = "booting"
    WORKING = "working"
    ENDED = "ended"
    LOST = "lost"
    STOPPED = "stopped"

    @property
    def alive(self) -> bool:
        """Whether it can still finish jobs."""
        return self in (WorkerPhase.LAUNCHING, WorkerPhase.BOOTING, WorkerPhase.WORKING)


_PHASE_OF_STATE = {
    "COMPLETED": WorkerPhase.ENDED,
    "FAILED": WorkerPhase.LOST,
    "CRASHED": WorkerPhase.LOST,
    "CANCELLED": WorkerPhase.STOPPED,
    "CANCELLING": WorkerPhase.STOPPED,
    "RUNNING": WorkerPhase.WORKING,
}


def worker_phase(state_type: str | None, *, has_instance: bool) -> WorkerPhase:
    """The phase of a worker whose flow run has this Prefect state type; AwaitingRetry and the like count as on their way."""
    return _PHASE_OF_STATE.get(state_type or "", WorkerPhase.BOOTING if has_instance else WorkerPhase.LAUNCHING)


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What Prefect knows of one fleet worker."""

    run_id: str
    name: str
    phase: WorkerPhase
    instance: str | None
    why: str
    """The state's message: the reason of a loss."""
    live_seconds: float
    """Since the instance was known, until it ended or now: what is paid for."""
    age_seconds: float = 0.0
    """Since it was asked for."""
    instance_type: str = ""
    """Empty: not known (yet)."""
    market: str = ""
    """spot or on-demand; empty: not known (yet)."""
    over: bool = False
    """The flow run is final: for our pool, its instance is gone or going."""
    interrupted: bool = False
    """EC2 took its instance."""


@dataclass(slots=True)
class EvalTally:
    """One eval's jobs and what became of them."""

    eval_id: EvalId
    task: str
    model: str
    jobs: Mapping[JobId, int]
    """Samples a job, in plan order."""
    done: set[JobId] = field(default_factory=set)
    """Of these jobs only."""
    failed: dict[JobId, str] = field(default_factory=dict)
    """Jobs that failed for good, with the reason."""
    whole: bool = False
    """Its one job is all of it: the task can't be split."""

    @property
    def samples(self) -> int:
        """Planned (sample, epoch) pairs."""
        return sum(self.jobs.values())

    @property
    def samples_done(self) -> int:
        """Pairs whose result lies in S3."""
        return sum(map(self.jobs.__getitem__, self.done))

    @property
    def open_jobs(self) -> list[JobId]:
        """Jobs with neither a result nor a final failure, in plan order."""
        return [job for job in self.jobs if job not in self.done and job not in self.failed]

    @property
    def settled(self) -> int:
        """How many jobs have a result or a final failure: counted, for a look that comes every second."""
        return len(self.done) + sum(job in self.jobs and job not in self.done for job in self.failed)


def tally_of(manifest: EvalManifest) -> EvalTally:
    """A fresh tally; a job that can't be split counts all samples and epochs of its task."""
    whole = len(manifest.sample_ids) * manifest.epochs
    return EvalTally(
        eval_id=manifest.eval_id,
        task=manifest.task.name,
        model=manifest.model.name,
        jobs={job.job: whole if job.whole else len(job.samples) for job in manifest.jobs},
        whole=any(job.whole for job in manifest.jobs),
    )


@dataclass(slots=True)
class WorkerTally:
    """What a worker said of itself."""

    slots: int = 0
    settled: int = 0
    """Its slots when it was last heard, also where it has ended since."""
    running: int = 0
    jobs: int = 0
    samples: int = 0
    errors: int = 0
    tokens: int = 0
    rate_limited: int = 0
    cost: float = 0.0
    """Dollars of the model calls of its finished jobs, where a table of prices came with the request."""
    given_back: int = 0
    """Jobs that were in flight when it ended, and went back to the queue."""
    trouble: str = ""
    """What its host or EC2 keeps it from; empty: nothing."""
    reason: str = ""
    """Why it ended, in a word (`WorkerEvent`); empty while it works, or where it had no last word."""


@dataclass(slots=True)
class RunTally:
    """Everything known of a run."""

    evals: dict[EvalId, EvalTally]
    workers: dict[str, WorkerTally] = field(default_factory=dict)

    @property
    def open_jobs(self) -> int:
        """Jobs of all evals with neither a result nor a final failure."""
        return sum(len(one.jobs) - one.settled for one in self.evals.values())

    def hear(self, event: WorkerEvent) -> None:
        """Take in one event. Duplicates of job_done count once for the eval, since a set holds what is done."""
        worker = self.workers.setdefault(event.worker, WorkerTally())
        match event.kind:
            case "job_done":
                worker.jobs += 1
                worker.samples += _count(event, "samples")
                worker.errors += _count(event, "errors")
                worker.tokens += _count(event, "tokens")
                worker.cost += _number(event, "cost")
                tally = self.evals.get(event.eval_id or "")
                if tally and event.job and event.job in tally.jobs:
                    tally.done.add(event.job)
            case "rate_limited":
                worker.rate_limited += max(1, _count(event, "times"))
            case "beat":
                worker.slots = worker.settled = _count(event, "slots")
                worker.running = _count(event, "running")
            case "host":
                worker.trouble = "" if event.detail.get("taking") else f"takes no jobs: {event.detail.get('why', '')}"
            case "notice":
                worker.trouble = f"EC2 announced: {event.detail.get('kind', '')} at {event.detail.get('at', '')}"
            case "given_back":
                jobs = event.detail.get("jobs")
                worker.given_back += len(jobs) if isinstance(jobs, list) else 0
            case "ended":
                worker.slots = worker.running = 0
                worker.reason = str(event.detail.get("reason", ""))
            case _:
                pass


def _count(event: WorkerEvent, name: str) -> int:
    return int(_number(event, name))


def _number(event: WorkerEvent, name: str) -> float:
    value = event.detail.get(name, 0)
    return value if isinstance(value, (int, float)) else 0


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One line of the workers' table."""

    name: str
    instance: str
    phase: str
    jobs: int
    samples: int
    errors: int
    slots: str
    minutes: float
    why: str
    run: str = ""
    """Its flow run's id."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot for a person."""

    samples: int
    samples_done: int
    samples_failed: int
    sample_errors: int
    jobs: int
    jobs_done: int
    tokens: int
    rate_limited: int
    workers: tuple[WorkerRow, ...]
    cost: float | None
    """Dollars of the instances so far; None where the price is unknown."""
    seconds: float
    """Since the watch began."""
    model_cost: float = 0.0
    """Dollars of the model calls of finished jobs, where a table of prices came with the request."""
    given_back: int = 0
    """Jobs that went back to the queue as their instances ended."""

    @property
    def whole_cost(self) -> float | None:
        """Dollars of instances and model calls so far; None where the instances' price is unknown."""
        return None if self.cost is None else self.cost + self.model_cost

    @property
    def fraction(self) -> float:
        """Finished pairs over planned ones, 0 to 1."""
        return (self.samples_done + self.samples_failed) / self.samples if self.samples else 1.0

    @property
    def launched(self) -> int:
        """Instances that there were: not each that is asked for comes."""
        return sum(bool(row.instance) for row in self.workers)

    def line(self) -> str:
        """The snapshot in one line."""
        alive = sum(
            row.phase in (WorkerPhase.WORKING, WorkerPhase.BOOTING, WorkerPhase.LAUNCHING) for row in self.workers
        )
        up = f"{alive} of {len(self.workers)} instances up" if alive else f"{self.launched} instances, all ended"
        parts = [f"{self.samples_done}/{self.samples} samples", up]
        if self.samples_failed:
            parts.append(f"{self.samples_failed} failed for good")
        if self.sample_errors:
            parts.append(f"{self.sample_errors} with errors")
        if self.rate_limited:
            parts.append(f"rate-limited {self.rate_limited} times")
        if self.given_back:
            parts.append(f"{self.given_back} jobs given back")
        parts.append("cost unknown" if self.cost is None else f"${self.cost:.2f}")
        if self.model_cost:
            parts.append(f"models ${self.model_cost:.2f}")
        return ", ".join(parts)


def snapshot(tally: RunTally, workers: Iterable[WorkerFacts], *, prices: Sequence[Price], seconds: float) -> Progress:
    """All facts of a run as one snapshot. `prices`: of all that the instances may be."""
    evals = list(tally.evals.values())
    facts = list(workers)
    rows = tuple(_row(fact, tally.workers.get(fact.run_id, WorkerTally())) for fact in facts)
    heard = list(tally.workers.values())
    return Progress(
        samples=sum(one.samples for one in evals),
        samples_done=sum(one.samples_done for one in evals),
        samples_failed=sum(one.jobs[job] for one in evals for job in one.failed if job in one.jobs),
        sample_errors=sum(worker.errors for worker in heard),
        jobs=sum(len(one.jobs) for one in evals),
        jobs_done=sum(len(one.done) for one in evals),
        tokens=sum(worker.tokens for worker in heard),
        rate_limited=sum(worker.rate_limited for worker in heard),
        workers=rows,
        cost=_cost(facts, prices),
        seconds=seconds,
        model_cost=sum(worker.cost for worker in heard),
        given_back=sum(worker.given_back for worker in heard),
    )


def _cost(workers: Iterable[WorkerFacts], prices: Sequence[Price]) -> float | None:
    """Dollars of the instances, each at its own price, or at the dearest where nobody said what it is. None: one's is unknown."""
    paid = [
        (worker.live_seconds / 3600, hourly_of(prices, worker.instance_type, worker.market))
        for worker in workers
        if worker.live_seconds
    ]
    if not prices or any(hourly is None for _, hourly in paid):
        return None
    return sum(hours * hourly for hours, hourly in paid if hourly is not None)


def _row(fact: WorkerFacts, said: WorkerTally) -> WorkerRow:
    early = fact.phase in (WorkerPhase.LOST, WorkerPhase.STOPPED) or said.reason == "interrupted"
    return WorkerRow(
        name=fact.name,
        instance=fact.instance or "",
        phase=fact.phase.value,
        jobs=said.jobs,
        samples=said.samples,
        errors=said.errors,
        slots=f"{said.running}/{said.slots}" if fact.phase is WorkerPhase.WORKING else "",
        minutes=round(fact.live_seconds / 60, 1),
        why=fact.why if early else said.trouble if fact.phase.alive else "",
        run=fact.run_id,
    )
