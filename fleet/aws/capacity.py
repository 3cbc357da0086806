"""Where an instance may be launched, and what a refused launch means.

Decides only: `fleet.aws.hunt` carries it out. A refusal is classed by its EC2 error code and by nothing else; a code
that no set names ends the hunt, because a retry we can't explain is a bill we can't explain.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fleet.aws.advice import OVER_QUOTA, advice
from fleet.aws.failures import DENIED, NO_ANSWER, NOT_VALIDATED, SERVER_TROUBLE, THROTTLED
from fleet.errors import FleetError

Market = Literal["on-demand", "spot"]

OUT_OF_CAPACITY = frozenset(
    {
        "CapacityReservationLimitExceeded",
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnOutpost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
    }
)
"""Nothing free of this type, in this zone or subnet, on this market."""

SHRINKING = OVER_QUOTA | {"InsufficientFreeAddressesInSubnet"}
"""Refusals of the count: EC2 refuses all of a request that goes over a limit, where fewer would be within it."""

NOT_OFFERED = frozenset({"Unsupported", "UnsupportedInstanceTypeOnOutpost"})
"""The zone of this subnet doesn't have the type."""

NO_FLEETS = (DENIED - NOT_VALIDATED) | {"InvalidAction", "MaxFleetCountExceeded", "UnknownParameter"}
"""Refusals of any fleet, or of any launch template: the next one would be refused alike."""

FLEET_UNFIT = (
    NO_FLEETS
    | NOT_VALIDATED
    | {
        "InvalidFleetConfig",
        "InvalidFleetConfiguration",  # of one place, or of all for it: its zone doesn't have the type
        "MaxTemplateLimitExceeded",
        "UnsupportedOperation",
    }
)
"""Refusals of CreateFleet or of a launch template that RunInstances may not share: the places are asked one by one then."""

NOT_TRIED = frozenset({"UnfulfillableCapacity"})
"""What a fleet says of places that it left out: it tries a few, and names the others with this."""

NOT_SEEN_YET = frozenset(
    {
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidGroup.NotFound",
        "InvalidSecurityGroupID.NotFound",
    }
)
"""What was made a moment ago isn't known everywhere in EC2 yet: our launch template, our security group. Or it is really gone, so
that it is waited for with a bound of its own (`search.NOT_SEEN_S`)."""

IN_DOUBT = NO_ANSWER | SERVER_TROUBLE
"""After these an instance may have been launched all the same: the same token asks for the same one again."""


class Next(enum.Enum):
    """What to do after one refused launch."""

    CANDIDATE = "try the next candidate"
    SAME_LATER = "ask for the same one again, after a wait"
    STOP = "no candidate will do better"


MEANING: dict[str, Next] = {
    **dict.fromkeys(OUT_OF_CAPACITY | OVER_QUOTA | NOT_OFFERED, Next.CANDIDATE),
    **dict.fromkeys(THROTTLED | IN_DOUBT | NOT_SEEN_YET, Next.SAME_LATER),
}


def after_refusal(code: str) -> Next:
    """What one refused RunInstances means, by its error code (for an answer that never came: botocore's class name)."""
    return MEANING.get(code, Next.STOP)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place to look for an instance."""

    instance_type: str
    subnet: str | None
    """None: EC2 picks one of the default VPC."""
    market: Market
    zone: str = field(default="", compare=False)
    """Of the subnet: for a person to read. Empty: not known."""


def candidates(instance_types: Iterable[str], zones: Mapping[str, str], market: Market) -> tuple[Candidate, ...]:
    """Every type in every subnet, in the order given; with spot, all of spot before anything on-demand.

    `zones`: the subnets, and the zone of each where it is known.
    """
    places: list[tuple[str | None, str]] = [*zones.items()] or [(None, "")]
    markets: tuple[Market, ...] = ("spot", "on-demand") if market == "spot" else ("on-demand",)
    kinds = list(dict.fromkeys(instance_types))
    return tuple(Candidate(kind, subnet, on, zone) for on in markets for kind in kinds for subnet, zone in places)


FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0


def wait_after(tries: int, draw: float) -> float:
    """Seconds to wait after the `tries`th refusal of one candidate in a row; `draw` in [0, 1) spreads those who wait."""
    longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * (1 << min(tries - 1, 16)))
    return longest * (0.5 + draw / 2)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What EC2 answered for one candidate."""

    candidate: Candidate
    code: str
    why: str
    named: bool = True
    """False: of several candidates EC2 named none, and this is the first of them."""


def table(refusals: Sequence[Refusal]) -> str:
    """The candidates and their answers, one a line, in columns. A zone says more than a subnet, which is named where it must be."""
    subnets: dict[str, set[str | None]] = {}
    for refusal in refusals:
        subnets.setdefault(refusal.candidate.zone, set()).add(refusal.candidate.subnet)
    rows = [("TYPE", "ZONE" if any(subnets) else "SUBNET", "MARKET", "ANSWER")]
    for refusal in refusals:
        place = refusal.candidate
        subnet = place.subnet or "default"
        where = place.zone if len(subnets[place.zone]) == 1 else f"{place.zone} ({subnet})"
        answer = f"{refusal.code}: {refusal.why}" if refusal.why else refusal.code
        rows.append((place.instance_type, where if place.zone else subnet, place.market, answer))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) for row in rows
    )


class LaunchFailed(FleetError):
    """No instance could be launched, and none is left behind. Children say what a person can do."""

    region: str
    refusals: tuple[Refusal, ...]
    """The last answer of each candidate that was tried, in order."""


class NoCapacity(LaunchFailed):
    """Every candidate was refused for want of capacity or quota: give more types or subnets, or try later."""

    def message(self) -> str:
        """What was tried, as a table, and for each kind of answer what helps."""
        count = len(self.refusals)
        helps = dict.fromkeys(
            advice(refusal.code, refusal.why, self.region, refusal.candidate.instance_type, refusal.candidate.market)
            for refusal in self.refusals
            if refusal.code in OVER_QUOTA
        )
        return (
            f"no capacity in {self.region}: {'the only candidate was' if count == 1 else f'all {count} candidates were'} "
            f"refused. {' '.join((*helps, 'More instance types or subnets give more candidates.'))}\n{table(self.refusals)}"
        )


class LaunchRefused(LaunchFailed):
    """EC2 refused for a reason that no other candidate would change, such as a permission or a wrong parameter."""

    def message(self) -> str:
        """The answer that ended the hunt, and what was tried before it."""
        last = self.refusals[-1]
        before = f"\nTried:\n{table(self.refusals)}" if len(self.refusals) > 1 else ""
        helps = advice(last.code, last.why, self.region, last.candidate.instance_type, last.candidate.market)
        said = f"{last.code}: {last.why}" if last.why else last.code
        return f"EC2 in {self.region} refused to launch {last.candidate.instance_type}: {said}. {helps}{before}"


class LaunchTooSlow(LaunchFailed):
    """EC2 throttled, or gave no answer, until the deadline."""

    seconds: float

    def message(self) -> str:
        """How long it was tried, and the last answers."""
        return (
            f"no instance could be launched in {self.region} within {self.seconds:g} s: EC2 asked to wait or gave no "
            f"answer. Try again later, or with fewer workers\n{table(self.refusals)}"
        )
