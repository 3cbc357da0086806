"""What a run would cost, before anything is created. Unknown stays unknown: no price list ships with this project."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fleet.aws.prices import Price
from fleet.errors import RequestRefused
from fleet.evals.documents import EvalId, JobId
from fleet.evals.forecast import FIRST_SLOTS, SPOT_LOSS, FleetModel, Forecast, forecasts, knee, most_slots, workers_for
from fleet.evals.instance_sizes import InstanceKind, SizeForecast, size_forecasts
from fleet.evals.progress import EvalTally

UNSEEN = "for jobs that mostly wait for their models: what memory and containers they need isn't looked at"
"""What a comparison of instance sizes can't know."""


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
    fleets: tuple[Forecast, ...] = ()
    """Fleets of several sizes, where earlier runs say how long each job takes; else none."""
    sizes: tuple[SizeForecast, ...] = ()
    """The same for instances of several sizes, a fleet each."""

    @property
    def unknown(self) -> tuple[Price, ...]:
        """Those whose price AWS didn't say."""
        return tuple(price for price in self.prices if price.hourly is None)

    def line(self) -> str:
        """The estimate in one line."""
        samples = sum(pairs for _, _, pairs, _ in self.evals)
        line = f"{samples} samples on {self.workers} × {self._instances()}, {self._an_hour()}"
        taken = [one for one in self.fleets if one.instances == self.workers]
        return f"{line}; about {_time(taken[0].seconds)} by earlier runs" if taken else line

    def table(self) -> list[list[str]]:
        """Time and cost of fleets of several sizes, and of each kind of instance: a head and a row a size; empty: not known."""
        if not self.fleets:
            return []
        head = ["instances", "time", "instance-hours", *(_named(price) for price in self.prices), ""]
        rows = [
            [
                str(one.instances),
                _time(one.seconds),
                f"{one.billed / 3600:.1f}",
                *("unknown" if p.hourly is None else f"${one.billed / 3600 * p.hourly:.2f}" for p in self.prices),
                "this one" if one.instances == self.workers else "",
            ]
            for one in self.fleets
        ]
        return [head, *rows]

    def size_table(self) -> list[list[str]]:
        """Time and cost on instances of several sizes: a head and a row a size; empty: not known."""
        if not self.sizes:
            return []
        own = next((one for one in self.sizes if one.kind.price.instance_type == self.prices[0].instance_type), None)
        priced = [(one.cost, one is not own, number) for number, one in enumerate(self.sizes) if one.cost is not None]
        least = self.sizes[min(priced)[2]] if priced else None  # of equals, the one that was asked for
        head = ["instance", "jobs at a time", "instances", "time", "instance-hours", "cost", ""]
        rows = [
            [
                _named(one.kind.price),
                str(one.slots),
                str(one.fleet.instances),
                _time(one.fleet.seconds),
                f"{one.fleet.billed / 3600:.1f}",
                "unknown" if one.cost is None else f"${one.cost:.2f}",
                ", ".join(["this one"] * (one is own) + ["costs least"] * (one is least)),
            ]
            for one in self.sizes
        ]
        return [head, *rows]

    def lines(self) -> list[str]:
        """The estimate for a terminal: its line, and the tables of fleet and instance sizes where there are some."""
        sizes = _aligned(self.size_table())
        return [self.line(), *_aligned(self.table()), *(["", *sizes, f"({UNSEEN})"] if sizes else [])]

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
            f"| most these instances can cost (each powers off after {self.max_hours:g} h) | {most} |\n\n{self._sizes()}"
            "Model tokens are not in these figures: Inspect knows no prices.\n"
        )

    def _sizes(self) -> str:
        """The tables of fleet and instance sizes as Markdown."""
        if not self.fleets:
            return ""
        fleets = (
            "#### Fleet sizes\n\nBy what these samples took when they last ran, as if each kind of instance ran as many jobs at a "
            f"time as the smallest of them can. Spot: with {SPOT_LOSS:.0%} of the instances lost in an hour.\n\n"
            f"{_as_markdown(self.table())}\n\n"
        )
        if not self.sizes:
            return fleets
        return fleets + (
            f"#### Instance sizes\n\nThe fleet that would be launched of each, {UNSEEN}.\n\n{_as_markdown(self.size_table())}\n\n"
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


def _as_markdown(table: Sequence[Sequence[str]]) -> str:
    head, *rows = table
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """A table for a terminal."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def estimate(
    tallies: Sequence[EvalTally],
    *,
    prices: Sequence[Price],
    region: str,
    max_workers: int,
    concurrency: int,
    max_hours: float,
    vcpus: Collection[int] = (),
    expected: Mapping[EvalId, Mapping[JobId, float]] | None = None,
    settled: int = 0,
    kinds: Sequence[InstanceKind] = (),
) -> Estimate:
    """The estimate of a run whose evals stand as `tallies` say.

    `concurrency`: jobs at a time, at most, that a person allows; `vcpus`: of all that the instances may be. `expected`: seconds of
    jobs, by earlier runs; `settled`: jobs at a time at which the last one's instances had settled; `kinds`: instances to compare.
    """
    evals = tuple((one.task, one.model, one.samples - one.samples_done, len(one.open_jobs)) for one in tallies)
    slots = most_slots(concurrency, vcpus)
    workers = workers_for(sum(jobs for *_, jobs in evals), max_workers=max_workers, concurrency=slots)
    loss = SPOT_LOSS if any(price.market == "spot" for price in prices) else 0.0
    seconds = _seconds(tallies, expected or {})
    model = FleetModel(slots, settled, loss)
    fleets = forecasts(seconds, max_workers, model, usual=workers) if seconds else ()
    return Estimate(
        evals=evals,
        workers=knee(fleets, usual=workers).instances if fleets else workers,
        prices=tuple(prices),
        region=region,
        max_hours=max_hours,
        fleets=fleets,
        sizes=size_forecasts(
            seconds,
            kinds if seconds and is_comparable(prices, kinds, concurrency, slots) else (),
            max_workers=max_workers,
            concurrency=concurrency,
            model=model,
        ),
    )


def is_comparable(prices: Sequence[Price], kinds: Sequence[InstanceKind], concurrency: int, slots: int) -> bool:
    """Whether other sizes stand beside the fleet's: not where a fallback's fewer vCPUs are what it is reckoned with."""
    first = [kind for kind in kinds if prices and kind.price.instance_type == prices[0].instance_type]
    return len(kinds) > len(first) > 0 and most_slots(concurrency, [first[0].vcpus]) == slots


def _seconds(tallies: Sequence[EvalTally], expected: Mapping[EvalId, Mapping[JobId, float]]) -> list[float]:
    """Seconds of each open job; none, if anything is unknown of one: half a picture would be an invented one."""
    found = [expected.get(one.eval_id, {}).get(job) for one in tallies for job in one.open_jobs]
    known = [seconds for seconds in found if seconds is not None]
    return known if len(known) == len(found) else []


def check_limit(offer: Estimate, max_cost: float | None) -> None:
    """Find that a limit in dollars can be held, whatever the instances will be. CostUnknown: nobody knows when it is reached."""
    if max_cost is not None and offer.workers and offer.unknown:
        raise CostUnknown(instance_type=_named(offer.unknown[0]), region=offer.region)
