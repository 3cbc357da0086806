"""What a smoke test may cost, and what it saves: pure sums over hours and prices."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_HOURLY = 0.10
"""Dollars an hour taken for an instance whose price AWS doesn't tell: more than any type that the smoke test would use."""
USUAL_FLEET = 24
"""Instances of the fleet that a fault found late would have kept waiting: the default of `max_workers`."""


@dataclass(frozen=True, slots=True)
class Bill:
    """The most that the smoke test's instances can cost: each ends itself after `max_hours`, come what may."""

    instances: int
    max_hours: float
    hourly: float | None
    """Dollars an hour of one; None: unknown."""

    @property
    def worst(self) -> float:
        """Dollars, if nothing but the instances' own lifetime ended them."""
        return self.instances * self.max_hours * (UNKNOWN_HOURLY if self.hourly is None else self.hourly)

    def line(self) -> str:
        """The sum as a person reads it."""
        price = (
            f"${self.hourly:.4f}" if self.hourly is not None else f"an unknown price, taken as ${UNKNOWN_HOURLY:.2f},"
        )
        return f"at most {self.instances} instances × {self.max_hours:g} h at {price} an hour: ${self.worst:.2f}"


def wasted(minutes: float, hourly: float | None, *, instances: int = USUAL_FLEET) -> str:
    """What a fleet costs that waits so long for a fault to show, in words."""
    fleet = f"{instances} instance{'s' if instances > 1 else ''} for {minutes:g} minutes"
    return fleet if hourly is None else f"{fleet}, ${instances * minutes / 60 * hourly:.2f}"
