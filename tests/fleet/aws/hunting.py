"""A hunt on a clock where nothing waits, and what must hold when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from fleet.aws.capacity import Candidate
from fleet.aws.hunt import Hunt, Member, Pace
from tests.fleet.aws.ec2 import ORDER, Clock, FakeEc2

A1, A2 = Candidate("a", "s1", "spot"), Candidate("a", "s2", "spot")
D1, D2 = Candidate("a", "s1", "on-demand"), Candidate("a", "s2", "on-demand")
PLACES = [A1, A2, D1, D2]


def members(count: int) -> list[Member]:
    return [Member(f"attempt-{number}", {"flow-run": f"run-{number}"}) for number in range(count)]


def hunt(
    ec2: FakeEc2,
    waiting: Sequence[Member],
    *,
    places: Sequence[Candidate] = PLACES,
    clock: Clock | None = None,
    together: bool = True,
    deadline: float = 60.0,
) -> Clock:
    """Hunt for all of them, to the end; each must have heard."""
    clock = clock or Clock()

    async def go() -> None:
        pace = Pace(clock=clock, sleep=clock.sleep)
        pace.together = together
        how: dict[str, Any] = {"clock": clock, "sleep": clock.sleep, "draw": lambda: 1.0, "pace": pace}
        await Hunt(ec2, ORDER, places, waiting, deadline_seconds=deadline, **how).run()

    anyio.run(go)
    assert all(member.done.is_set() for member in waiting)
    return clock


def nothing_else_is_left(ec2: FakeEc2, waiting: Sequence[Member]) -> None:
    """What runs is what the members have, each with its tag; what was made beside instances is gone."""
    given_ids = [member.instance.id for member in waiting if member.instance is not None]
    assert len(given_ids) == len(set(given_ids))
    assert set(ec2.running) == set(given_ids)
    for member in waiting:
        if member.instance is not None:
            assert member.tags.items() <= ec2.running[member.instance.id].tags.items()
            assert member.error is None
        else:
            assert member.error is not None
    assert ec2.closed == 1
