"""Where a group of launches is looked for next, answer by answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fleet.aws.capacity import NOT_SEEN_YET, Candidate, LaunchRefused, LaunchTooSlow, NoCapacity, Refusal
from fleet.aws.search import NOT_SEEN_S, Search
from tests.fleet.aws.ec2 import DRY, FULL, SLOW

A1, A2, B1 = Candidate("a", "s1", "spot"), Candidate("a", "s2", "spot"), Candidate("b", "s1", "spot")
D1 = Candidate("a", "s1", "on-demand")
PLACES = (A1, A2, B1, D1)
SPOT = PLACES[:3]


def search(places: Sequence[Candidate] = PLACES, *, until: float = 60.0, **more: Any) -> Search:
    return Search("group", places, region="us-east-1", until=until, seconds=60.0, together=True, **more)


def refusals(**codes: str) -> list[Refusal]:
    return [Refusal({"a1": A1, "a2": A2, "b1": B1}[name], code, "") for name, code in codes.items()]


def stages(found: Search, missing: int, *, most: int = 10) -> list[tuple[Candidate, ...]]:
    """What is asked for from here on if every place is dry."""
    asked: list[tuple[Candidate, ...]] = []
    for _ in range(most):
        try:
            ask = found.next(missing)
        except NoCapacity:
            return asked
        asked.append(ask.places)
        found.refused(ask, DRY, "", now=0.0, draw=0.0)
    raise AssertionError(f"it has no end: {asked}")


@pytest.mark.parametrize("got", [0, 1])
@pytest.mark.parametrize("code", [SLOW, "Unavailable", "InvalidGroup.NotFound"])
@pytest.mark.fault("throttled")
def test_a_place_of_a_fleet_that_was_throttled_is_asked_again_after_a_wait_before_anything_on_demand(
    got: int, code: str
) -> None:
    """Those that were dry are left out; the one that no error names may not have been tried."""
    found = search()
    first = found.next(3)
    assert found.answered(first, got, refusals(a1=DRY, a2=code), now=0.0, draw=0.5) > 0
    again = found.next(3 - got)
    assert again.places == (A2, B1)
    assert again.token != first.token
    assert found.answered(again, 3 - got) == 0.0


@pytest.mark.fault("throttled")
def test_the_last_place_of_a_fleet_that_was_throttled_is_asked_by_itself() -> None:
    found = search()
    found.answered(found.next(3), 1, refusals(a1=DRY, a2=SLOW, b1=DRY), now=0.0, draw=0.5)
    assert stages(found, 2) == [(A2,), (D1,)]


def test_a_fleet_that_is_throttled_to_the_end_is_too_slow() -> None:
    found = search()
    with pytest.raises(LaunchTooSlow):
        found.answered(found.next(3), 1, refusals(a2=SLOW), now=59.9, draw=0.9)


@pytest.mark.parametrize("got", [0, 1])
@pytest.mark.fault("no-capacity")
def test_places_that_a_fleet_did_not_name_are_asked_one_by_one_before_anything_on_demand(got: int) -> None:
    """An instant fleet is one attempt, and its errors name the places it tried: few of many."""
    found = search()
    assert found.answered(found.next(3), got, refusals(a1=DRY)) == 0.0
    assert stages(found, 3 - got) == [(A2,), (B1,), (D1,)]
    assert found.together


@pytest.mark.fault("no-capacity")
def test_a_fleet_that_names_all_its_places_is_followed_by_on_demand() -> None:
    found = search()
    found.answered(found.next(3), 2, refusals(a1=DRY, a2=DRY, b1="SpotMaxPriceTooLow"))
    assert stages(found, 1) == [(D1,)]


@pytest.mark.parametrize("code", ["UnfulfillableCapacity", "MaxSpotInstanceCountExceeded"])
def test_a_refusal_of_a_whole_fleet_is_not_the_last_word_on_each_place(code: str) -> None:
    """Quotas go by family, and pools have room of their own."""
    found = search()
    assert found.refused(found.next(1), code, "", now=0.0, draw=0.5) == 0.0
    assert stages(found, 1) == [(A1,), (A2,), (B1,), (D1,)]


@pytest.mark.fault("fewer-instances")
def test_a_fleet_that_gives_some_and_meets_a_quota_is_asked_for_half_of_the_rest() -> None:
    found = search()
    assert found.answered(found.next(10), 4, refusals(a1=FULL)) == 0.0
    assert (found.next(6).places, found.next(6).count) == (SPOT, 3)


def test_a_place_that_is_unfit_for_a_fleet_that_gave_some_is_asked_by_itself() -> None:
    """Fleets work in this account, as this one shows: they are used again."""
    found = search()
    found.answered(found.next(3), 1, refusals(a1="InvalidFleetConfiguration", a2=DRY))
    assert stages(found, 2) == [(A1,), (B1,), (D1,)]
    assert found.together


@pytest.mark.parametrize("code", ["InvalidFleetConfiguration", "UnauthorizedOperation"])
def test_one_misfit_keeps_no_later_launch_from_asking_for_a_fleet(code: str) -> None:
    """A zone without the type says nothing of fleets; what this fleet says of the other places stands."""
    found = search()
    assert found.answered(found.next(3), 0, refusals(a1=code, a2=DRY)) == 0.0
    assert stages(found, 3) == [(A1,), (B1,), (D1,)]
    assert found.together


@pytest.mark.parametrize(
    ("code", "again"),
    [
        ("InvalidFleetConfiguration", True),
        ("MaxTemplateLimitExceeded", True),
        ("AuthFailure", True),
        ("UnauthorizedOperation", False),
        ("MaxFleetCountExceeded", False),
    ],
)
def test_a_refused_fleet_is_the_last_of_all_only_where_any_would_be_refused(code: str, again: bool) -> None:
    """EC2 refuses the whole of a fleet for one zone that lacks the type, too."""
    found = search()
    assert found.refused(found.next(3), code, "", now=0.0, draw=0.5) == 0.0
    assert stages(found, 3) == [(A1,), (A2,), (B1,), (D1,)]
    assert found.together is again


def test_places_that_a_fleet_names_as_left_out_are_asked_one_by_one() -> None:
    found = search()
    found.answered(found.next(3), 0, refusals(a1=DRY, a2=DRY, b1="UnfulfillableCapacity"))
    assert stages(found, 3) == [(B1,), (D1,)]


@pytest.mark.fault("fewer-instances")
def test_a_refusal_for_good_of_one_place_does_not_stop_a_fleet_that_gave_some() -> None:
    found = search()
    found.answered(found.next(3), 1, refusals(a1="InvalidSubnetID.NotFound"))
    assert stages(found, 2) == [(A2,), (B1,), (D1,)]
    stopped = search()
    with pytest.raises(LaunchRefused):
        stopped.answered(stopped.next(3), 0, refusals(a1="InvalidSubnetID.NotFound"))


@pytest.mark.parametrize("code", sorted(NOT_SEEN_YET))
def test_what_was_made_a_moment_ago_is_waited_for_and_not_for_ever(code: str) -> None:
    found = search([D1], until=300.0)
    now = 0.0
    for _ in range(4):
        now += found.refused(found.next(1), code, "no such thing", now=now, draw=1.0)
    assert NOT_SEEN_S / 2 <= now <= NOT_SEEN_S
    with pytest.raises(LaunchRefused, match=code):
        found.refused(found.next(1), code, "no such thing", now=now, draw=1.0)


def test_what_is_not_seen_later_has_its_own_time() -> None:
    found = search([A1, D1], until=300.0)
    found.refused(found.next(2), "InvalidGroup.NotFound", "", now=0.0, draw=1.0)
    found.answered(found.next(2), 1)
    assert found.refused(found.next(1), "InvalidGroup.NotFound", "", now=99.0, draw=1.0) > 0
