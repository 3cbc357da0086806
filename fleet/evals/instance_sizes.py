"""What the work of a run would take and cost on instances of other sizes, by what its samples took before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.aws.capacity import Market
from fleet.aws.prices import Price
from fleet.evals.forecast import FleetModel, Forecast, launched, most_slots

STEPS = (0.25, 0.5, 1.0, 2.0)
"""Sizes that are worth a look, by their vCPUs over those of the one that was asked for."""


@dataclass(frozen=True, slots=True)
class InstanceKind:
    """An instance that a run could have."""

    price: Price
    vcpus: int


@dataclass(frozen=True, slots=True)
class SizeForecast:
    """The fleet that would be launched of instances of one size."""

    kind: InstanceKind
    slots: int
    """Jobs at a time on one instance, at most."""
    fleet: Forecast

    @property
    def cost(self) -> float | None:
        """Dollars. None: AWS didn't say what an instance costs."""
        hourly = self.kind.price.hourly
        return None if hourly is None else self.fleet.billed / 3600 * hourly


def near(vcpus: Mapping[str, int], instance_type: str) -> list[str]:
    """Types of the same family (`vcpus`: of all of it) whose sizes are steps from this one's, the smallest first.

    None of several with the same vCPUs: they differ in what isn't looked at here.
    """
    own = vcpus.get(instance_type)
    if not own:
        return []
    by_count: dict[int, list[str]] = {}
    for name, count in vcpus.items():
        if ".metal" not in name:
            by_count.setdefault(count, []).append(name)
    by_count[own] = [instance_type]
    wanted = {own * step for step in STEPS}
    return [by_count[count][0] for count in sorted(by_count) if count in wanted and len(by_count[count]) == 1]


def to_compare(
    prices: Iterable[Price], vcpus: Mapping[str, int], instance_type: str, market: Market
) -> list[InstanceKind]:
    """The sizes that are `near` this type's and whose prices were asked for on this market, the smallest first."""
    of_type = {price.instance_type: price for price in prices if price.market == market}
    return [InstanceKind(of_type[name], vcpus[name]) for name in near(vcpus, instance_type) if name in of_type]


def size_forecasts(
    seconds: Sequence[float], kinds: Iterable[InstanceKind], *, max_workers: int, concurrency: int, model: FleetModel
) -> tuple[SizeForecast, ...]:
    """What jobs that take `seconds` would come to on a fleet of each kind.

    `model`: of the instances that were asked for. Where a provider kept their slots below what they could have, it does so with
    any size; where they had all that they could, another size has what that one can.
    """
    found = []
    for kind in kinds:
        most = most_slots(concurrency, [kind.vcpus])
        is_kept_down = model.settled and model.settled < model.most
        settled = min(model.settled, most) if is_kept_down else most * bool(model.settled)
        own = replace(model, most=most, settled=settled)
        found.append(SizeForecast(kind, settled or most, launched(seconds, max_workers, own)))
    return tuple(found)
