"""What a run would cost, before anything is created. Unknown stays unknown: no price list ships with this project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.aws.prices import Price
from fleet.errors import RequestRefused
from fleet.evals.progress import EvalTally

FIRST_SLOTS = 10
"""Jobs at a time with which an instance starts; it adapts from there."""


class CostUnknown(RequestRefused):
    """A limit was set on a cost that can't be known."""

    instance_type: str
    """With its market."""
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
    prices: tuple[Price, ...]
    """Of all that the instances may be, in the order in which it is tried."""
    region: str
    max_hours: float

    @property
    def unknown(self) -> tuple[Price, ...]:
        """Those whose price AWS didn't say."""
        return tuple(price for price in self.prices if price.hourly is None)

    def line(self) -> str:
        """The estimate in one line."""
        samples = sum(pairs for _, _, pairs, _ in self.evals)
        return f"{samples} samples on {self.workers} × {self._instances()}, {self._an_hour()}"

    def markdown(self) -> str:
        """The estimate as a page."""
        rows = "\n".join(f"| {task} | {model} | {pairs} | {jobs} |" for task, model, pairs, jobs in self.evals)
        prices = "\n".join(
            f"| price of {_named(price)}, an instance-hour | {'unknown' if price.hourly is None else f'${price.hourly:.4f}'} |"
            for price in self.prices
        )
        dearest = max(self._known(), default=0.0)
        most = "unknown" if self.unknown else f"${dearest * self.workers * self.max_hours:.2f}"
        return (
            f"### {self.line()}\n\n| task | model | samples to run | jobs |\n|---|---|---|---|\n{rows}\n\n"
            f"| | |\n|---|---|\n| instances | {self.workers} × {self._instances()} |\n{prices}\n"
            f"| price of the fleet | {self._an_hour()} |\n"
            f"| most these instances can cost (each powers off after {self.max_hours:g} h) | {most} |\n\n"
            "Model tokens are not in these figures: Inspect knows no prices.\n"
        )

    def _instances(self) -> str:
        """What they may be, and where."""
        kinds = " or ".join(dict.fromkeys(price.instance_type for price in self.prices))
        markets = ", else ".join(dict.fromkeys(price.market for price in self.prices))
        return f"{kinds} ({markets}, {self.region})"

    def _an_hour(self) -> str:
        """What the fleet costs an hour: between all of the cheapest and all of the dearest. What isn't known is named."""
        known = [price * self.workers for price in self._known()]
        if not known:
            return "price unknown"
        least, most = f"${min(known):.2f}", f"${max(known):.2f}"
        said = f"about {least} an hour" if least == most else f"{least} to {most} an hour"
        return f"{said}; the price of {' and '.join(map(_named, self.unknown))} is unknown" if self.unknown else said

    def _known(self) -> list[float]:
        return [price.hourly for price in self.prices if price.hourly is not None]


def _named(price: Price) -> str:
    return f"{price.instance_type} ({price.market})"


def estimate(
    tallies: Sequence[EvalTally],
    *,
    prices: Sequence[Price],
    region: str,
    max_workers: int,
    concurrency: int,
    max_hours: float,
) -> Estimate:
    """The estimate of a run whose evals stand as `tallies` say."""
    evals = tuple((one.task, one.model, one.samples - one.samples_done, len(one.open_jobs)) for one in tallies)
    return Estimate(
        evals=evals,
        workers=workers_for(sum(jobs for *_, jobs in evals), max_workers=max_workers, concurrency=concurrency),
        prices=tuple(prices),
        region=region,
        max_hours=max_hours,
    )


def check_limit(offer: Estimate, max_cost: float | None) -> None:
    """Find that a limit in dollars can be held, whatever the instances will be. CostUnknown: nobody knows when it is reached."""
    if max_cost is not None and offer.workers and offer.unknown:
        raise CostUnknown(instance_type=_named(offer.unknown[0]), region=offer.region)
