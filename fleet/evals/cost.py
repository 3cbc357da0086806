"""What a run would cost, before anything is created. Unknown stays unknown: no price list ships with this project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.errors import RequestRefused
from fleet.evals.progress import EvalTally

FIRST_SLOTS = 10
"""Jobs at a time with which an instance starts; it adapts from there."""


class CostUnknown(RequestRefused):
    """A limit was set on a cost that can't be known."""

    instance_type: str
    region: str

    def message(self) -> str:
        """One line, with what helps."""
        return (
            f"max_cost can't be held: AWS doesn't say what an instance of type {self.instance_type} costs in {self.region} "
            "(the permission pricing:GetProducts is needed, or ec2:DescribeSpotPriceHistory for spot). Limit the run by "
            "deadline_hours instead"
        )


def fleet_slots(max_workers: int, concurrency: int) -> int:
    """Jobs that run at a time on the whole fleet, at first."""
    return max_workers * min(FIRST_SLOTS, concurrency)


def workers_for(open_jobs: int, *, max_workers: int, concurrency: int) -> int:
    """How many instances are worth launching: as many as can each fill their first slots, at most `max_workers`."""
    if open_jobs == 0:
        return 0
    return max(1, min(max_workers, math.ceil(open_jobs / min(FIRST_SLOTS, concurrency))))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a person approves."""

    evals: tuple[tuple[str, str, int, int], ...]
    """Task, model, (sample, epoch) pairs and jobs still to run, an eval each."""
    workers: int
    instance_type: str
    market: str
    region: str
    hourly: float | None
    """Dollars an instance-hour; None where AWS didn't say."""
    max_hours: float

    @property
    def fleet_hourly(self) -> float | None:
        """Dollars an hour for the whole fleet."""
        return None if self.hourly is None else self.hourly * self.workers

    def line(self) -> str:
        """The estimate in one line."""
        samples = sum(pairs for _, _, pairs, _ in self.evals)
        price = "price unknown" if self.fleet_hourly is None else f"about ${self.fleet_hourly:.2f} an hour"
        return f"{samples} samples on {self.workers} × {self.instance_type} ({self.market}, {self.region}), {price}"

    def markdown(self) -> str:
        """The estimate as a page."""
        hourly = "unknown" if self.hourly is None else f"${self.hourly:.4f}"
        fleet = "unknown" if self.fleet_hourly is None else f"${self.fleet_hourly:.2f}"
        most = "unknown" if self.fleet_hourly is None else f"${self.fleet_hourly * self.max_hours:.2f}"
        rows = "\n".join(f"| {task} | {model} | {pairs} | {jobs} |" for task, model, pairs, jobs in self.evals)
        return (
            f"### {self.line()}\n\n| task | model | samples to run | jobs |\n|---|---|---|---|\n{rows}\n\n"
            f"| | |\n|---|---|\n| instances | {self.workers} × {self.instance_type} ({self.market}) in {self.region} |\n"
            f"| price an instance-hour | {hourly} |\n| price of the fleet an hour | {fleet} |\n"
            f"| most these instances can cost (each powers off after {self.max_hours:g} h) | {most} |\n\n"
            "Model tokens are not in these figures: Inspect knows no prices.\n"
        )


def estimate(
    tallies: Sequence[EvalTally],
    *,
    instance_type: str,
    market: str,
    region: str,
    max_workers: int,
    concurrency: int,
    hourly: float | None,
    max_hours: float,
) -> Estimate:
    """The estimate of a run whose evals stand as `tallies` say."""
    evals = tuple((one.task, one.model, one.samples - one.samples_done, len(one.open_jobs)) for one in tallies)
    return Estimate(
        evals=evals,
        workers=workers_for(sum(jobs for *_, jobs in evals), max_workers=max_workers, concurrency=concurrency),
        instance_type=instance_type,
        market=market,
        region=region,
        hourly=hourly,
        max_hours=max_hours,
    )


def check_limit(offer: Estimate, max_cost: float | None) -> None:
    """Find that a limit in dollars can be held. CostUnknown: nobody knows when it is reached."""
    if max_cost is not None and offer.workers and offer.hourly is None:
        raise CostUnknown(instance_type=offer.instance_type, region=offer.region)
