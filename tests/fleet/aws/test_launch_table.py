"""The launch of a group obeys the failure rules, row by row: what is asked, what each member gets, and what is left (nothing)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.aws.capacity import Candidate, LaunchRefused, LaunchTooSlow, NoCapacity
from fleet.aws.hunt import Hunt, Pace, TagsRefused
from fleet.aws.pacing import LAUNCHES
from tests.fleet.aws.ec2 import BAD, BUG, DRY, FULL, LOST, OK, ORDER, SLOW, UNSEEN, Clock, FakeEc2
from tests.fleet.aws.hunting import A1, A2, D1, D2, PLACES, hunt, members, nothing_else_is_left


@dataclass(frozen=True)
class Row:
    name: str
    ec2: Callable[[], FakeEc2]
    asked: list[tuple[Sequence[Candidate], int]]
    """Places and counts, in order."""
    count: int = 3
    launched: int = 3
    error: type[Exception] | None = None
    """Of those who have none."""
    together: bool = True
    words: tuple[str, ...] = field(default=())
    """Of its message."""


SPOT = (A1, A2)
ROWS = [
    Row("all at once", FakeEc2, [(SPOT, 3)]),
    Row("one is asked for by its place", lambda: FakeEc2([DRY, OK]), [((A1,), 3), ((A2,), 3)], together=False),
    Row(
        "fewer than asked: the next place is asked for the rest",
        lambda: FakeEc2(room={A1: 1, A2: 1}),
        [((A1,), 3), ((A2,), 2), ((D1,), 1)],
        together=False,
    ),
    Row(
        "a fleet gives fewer: on-demand for the rest only",
        lambda: FakeEc2(room={A1: 1, A2: 1}),
        [(SPOT, 3), ((D1,), 1)],
    ),
    Row(
        "a place of a fleet is throttled: it is asked again, and on-demand isn't",
        lambda: FakeEc2(place_answers=[{A2: SLOW}], room={A1: 1}),
        [(SPOT, 3), ((A2,), 2)],
    ),
    Row(
        "a fleet that gives nothing hasn't tried all its places: those are asked one by one",
        lambda: FakeEc2(tries=1, room={A1: 0, A2: 2}),
        [(SPOT, 3), ((A2,), 3), ((D1,), 1)],
    ),
    Row("no spot at all", lambda: FakeEc2(room={A1: 0, A2: 0}), [(SPOT, 3), ((D1,), 3)]),
    Row(
        "fewer than asked everywhere: those are kept, the others told",
        lambda: FakeEc2(room={A1: 1, A2: 0, D1: 1, D2: 0}),
        [(SPOT, 3), ((D1,), 2), ((D2,), 1)],
        launched=2,
        error=NoCapacity,
        words=("no capacity in us-east-1", "it gave 1 of 2"),
    ),
    Row(
        "nothing anywhere",
        lambda: FakeEc2([DRY]),
        [((A1,), 3), ((A2,), 3), ((D1,), 3), ((D2,), 3)],
        launched=0,
        error=NoCapacity,
        together=False,
        words=("all 4 candidates were refused", "InsufficientInstanceCapacity"),
    ),
    Row(
        "fleets aren't permitted: place by place, and that is remembered",
        lambda: FakeEc2(together=False),
        [(SPOT, 3), ((A1,), 3)],
    ),
    Row(
        "a quota refuses all of a request that goes over it: fewer are asked for, to the last one",
        lambda: FakeEc2(quota=3),
        [
            *[((A1,), 5), ((A1,), 2), ((A1,), 2), ((A1,), 1), ((A1,), 1)],
            *[((place,), count) for place in (A2, D1, D2) for count in (2, 1)],
        ],
        count=5,
        launched=3,
        error=NoCapacity,
        together=False,
        words=("servicequotas", "quota 'All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests' is used up"),
    ),
    Row("a quota in a fleet", lambda: FakeEc2(quota=3), [(SPOT, 3)]),
    Row("throttled twice", lambda: FakeEc2([SLOW, SLOW, OK]), [(SPOT, 3)] * 3),
    Row(
        "throttled to the end",
        lambda: FakeEc2([SLOW]),
        [(SPOT, 3)] * 30,
        launched=0,
        error=LaunchTooSlow,
        words=("within 60 s", "Try again later"),
    ),
    Row("an answer was lost: the same is asked", lambda: FakeEc2([LOST, OK]), [(SPOT, 3)] * 2),
    Row(
        "an answer was lost, then there is none left",
        lambda: FakeEc2([LOST, DRY, OK]),
        [((A1,), 3), ((A1,), 3), ((A2,), 3)],
        together=False,
    ),
    Row("answers are lost to the end", lambda: FakeEc2([LOST]), [(SPOT, 3)] * 6, launched=0, error=LaunchTooSlow),
    Row(
        "a permission is missing",
        lambda: FakeEc2([DRY, BAD, OK]),
        [((A1,), 3), ((A2,), 3)],
        launched=0,
        error=LaunchRefused,
        together=False,
        words=("lacks ec2:RunInstances", "inspect-fleet-launcher"),
    ),
    Row("a bug after the launch", lambda: FakeEc2([BUG]), [(SPOT, 3)], launched=0, error=KeyError),
    Row("a new instance isn't known to EC2 for two calls", lambda: FakeEc2(unseen=2), [(SPOT, 3)]),
    Row("tagging is throttled", lambda: FakeEc2(tag_answers=[SLOW, SLOW]), [(SPOT, 3)]),
    Row("an answer to the tagging is lost", lambda: FakeEc2(tag_answers=[LOST]), [(SPOT, 3)]),
    Row(
        "tagging is denied at first, since the instance's own tags aren't seen yet",
        lambda: FakeEc2(tag_answers=[BAD] * 3),
        [(SPOT, 3)],
    ),
    Row("one can't be tagged: another is launched for it", lambda: FakeEc2(untaggable=1), [(SPOT, 3), (SPOT, 1)]),
    Row(
        "one can't be tagged, and isn't known for a while to those who end it",
        lambda: FakeEc2(untaggable=1, unseen=2),
        [(SPOT, 3), (SPOT, 1)],
    ),
    Row(
        "none can be tagged: two are tried for each, and no more",
        lambda: FakeEc2(untaggable=9),
        [(SPOT, 3), (SPOT, 3)],
        launched=0,
        error=TagsRefused,
        words=("its tags could not be written: UnauthorizedOperation", "ec2:CreateTags"),
    ),
    Row(
        "a bug while one is tagged takes no other with it",
        lambda: FakeEc2(tag_answers=[BUG]),
        [(SPOT, 3)],
        launched=2,
        error=KeyError,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.fault("no-capacity", "fewer-instances", "throttled", "launch-error")
def test_a_launch_obeys_the_failure_rules(row: Row) -> None:
    ec2, waiting = row.ec2(), members(row.count)
    hunt(ec2, waiting, together=row.together)
    asked = [(ask.places, ask.count) for ask in ec2.asks]
    if row.error is LaunchTooSlow and SLOW in ec2.answers:
        assert 10 < len(asked) <= 62
        assert set(asked) == {row.asked[0]}
    else:
        assert asked == [(tuple(places), count) for places, count in row.asked]
    assert sum(member.instance is not None for member in waiting) == row.launched
    for member in waiting:
        if member.instance is None:
            assert isinstance(member.error, row.error or ())
            for word in row.words:
                assert word in str(member.error)
    nothing_else_is_left(ec2, waiting)


EVERY_SUBSET = [
    frozenset(dry) for size in range(len(PLACES) + 1) for dry in itertools.combinations(range(len(PLACES)), size)
]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("dry", EVERY_SUBSET, ids=lambda dry: "".join(map(str, sorted(dry))) or "none")
@pytest.mark.fault("no-capacity")
def test_for_every_subset_of_places_without_capacity_the_first_of_the_others_is_taken(
    dry: frozenset[int], together: bool
) -> None:
    ec2, waiting = FakeEc2(room={PLACES[number]: 0 for number in dry}), members(2)
    hunt(ec2, waiting, together=together)
    left = [place for number, place in enumerate(PLACES) if number not in dry]
    for member in waiting:
        if left:
            assert member.instance is not None
            assert (member.instance.instance_type, member.instance.market) == (left[0].instance_type, left[0].market)
        else:
            assert isinstance(member.error, NoCapacity)
            assert {refusal.candidate for refusal in member.error.refusals} == set(PLACES)
    in_order = [((place,), 2) for place in PLACES[: PLACES.index(left[0]) + 1 if left else len(PLACES)]]
    asked = (
        [(SPOT, 2), *in_order[2:]] if together else in_order
    )  # each once, and none after the first that has capacity
    assert [(ask.places, ask.count) for ask in ec2.asks] == asked
    nothing_else_is_left(ec2, waiting)


@pytest.mark.parametrize("groups", [1, 64], ids=["in one group", "each alone"])
@pytest.mark.fault("throttled")
def test_sixty_four_all_come_up_though_two_of_three_calls_are_throttled(groups: int) -> None:
    """All draw on one pace. Alone, each costs three calls: the pace must neither drown in refusals nor miss the deadline."""
    calls = itertools.count(1)
    ec2 = FakeEc2(refuse=lambda: OK if next(calls) % 3 == 0 else SLOW)
    waiting, clock = members(64), Clock()
    shares = [waiting[start::groups] for start in range(groups)]

    async def go() -> None:
        pace = Pace(clock=clock, sleep=clock.sleep)
        how: dict[str, Any] = {"clock": clock, "sleep": clock.sleep, "draw": lambda: 0.5, "pace": pace}
        async with anyio.create_task_group() as group:
            for number, share in enumerate(shares):
                order = ORDER.__class__(**{**{f: getattr(ORDER, f) for f in ORDER.__slots__}, "attempt": f"g{number}"})
                group.start_soon(Hunt(ec2, order, PLACES, share, deadline_seconds=300.0, **how).run)
        assert LAUNCHES.slowest <= pace.launches.rate <= LAUNCHES.fastest

    anyio.run(go)
    assert [member.error for member in waiting] == [None] * 64
    assert len(ec2.asks) == 3 * groups
    assert set(ec2.running) == {member.instance.id for member in waiting if member.instance}
    assert clock.now < 300


@pytest.mark.fault("fewer-instances")
def test_instances_are_handed_over_as_they_come_and_not_when_all_are_there() -> None:
    """On-demand is throttled for long; who has a spot instance doesn't wait for it."""
    ec2, waiting, clock = FakeEc2([OK, SLOW, SLOW, SLOW, OK], room={A1: 1, A2: 0}), members(2), Clock()
    heard: list[int] = []

    async def go() -> None:
        async def first() -> None:
            await waiting[0].done.wait()
            heard.append(len(ec2.asks))

        async def sleep(seconds: float) -> None:
            await clock.sleep(seconds)
            await anyio.sleep(0.02)  # who was handed an instance gets its turn, as in any real wait

        async with anyio.create_task_group() as group:
            group.start_soon(first)
            how: dict[str, Any] = {"clock": clock, "sleep": sleep, "draw": lambda: 1.0}
            await Hunt(ec2, ORDER, PLACES, waiting, **how).run()

    anyio.run(go)
    assert heard[0] < 5 == len(ec2.asks)
    nothing_else_is_left(ec2, waiting)


ANSWERS = [OK, DRY, SLOW, BAD, LOST, BUG, FULL, "PendingVerification", "InternalError"]


@given(
    answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=8),
    tag_answers=st.lists(st.sampled_from([OK, BAD, SLOW, LOST, BUG, UNSEEN]), max_size=6),
    room=st.dictionaries(st.sampled_from(PLACES), st.integers(0, 3), max_size=4),
    quota=st.none() | st.integers(0, 4),
    unseen=st.integers(0, 2),
    late=st.integers(0, 1),
    tries=st.none() | st.integers(1, 2),
    place_answers=st.lists(
        st.dictionaries(st.sampled_from([A1, A2]), st.sampled_from([DRY, SLOW, FULL, BAD, "InternalError"])), max_size=3
    ),
    count=st.integers(1, 5),
    together=st.booleans(),
)
@settings(deadline=None, max_examples=120)
@pytest.mark.fault("launch-error")
def test_no_instance_runs_unrecorded(
    answers: list[str],
    tag_answers: list[str],
    room: dict[Candidate, int],
    quota: int | None,
    unseen: int,
    late: int,
    tries: int | None,
    place_answers: list[dict[Candidate, str]],
    count: int,
    together: bool,
) -> None:
    """Whatever EC2 answers to whichever call: what runs afterwards is what the members have, tagged; and each has heard."""
    ec2 = FakeEc2(
        answers,
        room=room,
        quota=quota,
        tag_answers=tag_answers,
        unseen=unseen,
        late=late,
        tries=tries,
        place_answers=place_answers,
    )
    waiting = members(count)
    hunt(ec2, waiting, together=together)
    nothing_else_is_left(ec2, waiting)
