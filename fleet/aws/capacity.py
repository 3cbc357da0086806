"""Where an instance may be launched, and what a refused launch means.

Decides only: `fleet.aws.instances` carries it out. A refusal is classed by its EC2 error code and by nothing else; a code
that no set names ends the hunt, because a retry we can't explain is a bill we can't explain.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.aws.failures import NO_ANSWER, THROTTLED
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

OVER_QUOTA = frozenset(
    {
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "SpotInstanceCountLimitExceeded",
        "VcpuLimitExceeded",
    }
)
"""The account's own limit. Limits count by family and market, so that another candidate may be within its own."""

NOT_OFFERED = frozenset({"Unsupported", "UnsupportedInstanceTypeOnOutpost"})
"""The zone of this subnet doesn't have the type."""

SERVER_TROUBLE = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "ServiceUnavailable",
        "Unavailable",
        "500",
        "502",
        "503",
    }
)
"""EC2's own fault. An answer without a readable body has its HTTP status as its code."""

IN_DOUBT = NO_ANSWER | SERVER_TROUBLE
"""After these an instance may have been launched all the same: the same token asks for the same one again."""


class Next(enum.Enum):
    """What to do after one refused launch."""

    CANDIDATE = "try the next candidate"
    SAME_LATER = "ask for the same one again, after a wait"
    STOP = "no candidate will do better"


MEANING: dict[str, Next] = {
    **dict.fromkeys(OUT_OF_CAPACITY | OVER_QUOTA | NOT_OFFERED, Next.CANDIDATE),
    **dict.fromkeys(THROTTLED | IN_DOUBT, Next.SAME_LATER),
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


def candidates(instance_types: Iterable[str], subnets: Iterable[str], market: Market) -> tuple[Candidate, ...]:
    """Every type in every subnet, in the order given; with spot, all of spot before anything on-demand."""
    places: list[str | None] = [*dict.fromkeys(subnets)] or [None]
    markets: tuple[Market, ...] = ("spot", "on-demand") if market == "spot" else ("on-demand",)
    kinds = list(dict.fromkeys(instance_types))
    return tuple(Candidate(kind, place, on) for on in markets for kind in kinds for place in places)


def client_token(attempt: str, candidate: Candidate) -> str:
    """The idempotency token of one candidate of one attempt: 64 characters, EC2's limit.

    Each candidate has its own: EC2 refuses a token that comes back with other parameters, for ever. `attempt` is new each
    time a flow run is submitted, else a second attempt would be answered with the first one's dead instance.
    """
    parts = "\0".join((attempt, candidate.instance_type, candidate.subnet or "", candidate.market))
    return hashlib.sha256(parts.encode()).hexdigest()


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


def table(refusals: Sequence[Refusal]) -> str:
    """The candidates and their answers, one a line, in columns."""
    rows = [("TYPE", "SUBNET", "MARKET", "ANSWER")]
    rows += [
        (
            refusal.candidate.instance_type,
            refusal.candidate.subnet or "default",
            refusal.candidate.market,
            f"{refusal.code}: {refusal.why}" if refusal.why else refusal.code,
        )
        for refusal in refusals
    ]
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
        """What was tried, as a table."""
        count = len(self.refusals)
        return (
            f"no capacity in {self.region}: {'the only candidate was' if count == 1 else f'all {count} candidates were'} "
            f"refused. More instance types or subnets give more candidates.\n{table(self.refusals)}"
        )


class LaunchRefused(LaunchFailed):
    """EC2 refused for a reason that no other candidate would change, such as a permission or a wrong parameter."""

    def message(self) -> str:
        """The answer that ended the hunt, and what was tried before it."""
        last = self.refusals[-1]
        before = f"\nTried:\n{table(self.refusals)}" if len(self.refusals) > 1 else ""
        return f"EC2 in {self.region} refused to launch {last.candidate.instance_type}: {last.code}: {last.why}{before}"


class LaunchTooSlow(LaunchFailed):
    """EC2 throttled, or gave no answer, until the deadline."""

    seconds: float

    def message(self) -> str:
        """How long it was tried, and the last answers."""
        return (
            f"no instance could be launched in {self.region} within {self.seconds:g} s: EC2 asked to wait or gave no "
            f"answer\n{table(self.refusals)}"
        )
