"""What the work of a run would take and cost on instances of other sizes, by what its samples took before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
    """Types of the same family (`vcpus`: of all of it) whose sizes are steps from this one's, the smallest first."""
    own = vcpus.get(instance_type)
    if not own:
        return []
    wanted = [own * step for step in STEPS]
    first = {count: name for name, count in sorted(vcpus.items(), reverse=True) if ".metal" not in name}
    first[own] = instance_type
    return [first[count] for count in sorted(first) if count in wanted]


def size_forecasts(
    seconds: Sequence[float], kinds: Iterable[InstanceKind], *, max_workers: int, concurrency: int, model: FleetModel
) -> tuple[SizeForecast, ...]:
    """What jobs that take `seconds` would come to on a fleet of each kind.

    `model`: of the instances that were asked for; where slots had settled is a provider's doing more than a size's.
    """
    found = []
    for kind in kinds:
        slots = most_slots(concurrency, [kind.vcpus])
        own = replace(model, most=slots, settled=min(model.settled, slots))
        found.append(SizeForecast(kind, slots, launched(seconds, max_workers, own)))
    return tuple(found)
