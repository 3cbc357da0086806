"""The table of answers: what each refusal of EC2 means, and where to look next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.advice import OVER_QUOTA
from fleet.aws.capacity import (
    IN_DOUBT,
    LONGEST_WAIT_S,
    NOT_OFFERED,
    NOT_SEEN_YET,
    OUT_OF_CAPACITY,
    Candidate,
    LaunchRefused,
    Next,
    NoCapacity,
    Refusal,
    after_refusal,
    candidates,
    table,
    wait_after,
)
from fleet.aws.failures import BAD_CREDENTIALS, DENIED, THROTTLED

ANSWERS = [
    ("InsufficientInstanceCapacity", Next.CANDIDATE),
    ("InsufficientFreeAddressesInSubnet", Next.CANDIDATE),
    ("SpotMaxPriceTooLow", Next.CANDIDATE),
    ("MaxSpotInstanceCountExceeded", Next.CANDIDATE),
    ("VcpuLimitExceeded", Next.CANDIDATE),
    ("Unsupported", Next.CANDIDATE),
    ("RequestLimitExceeded", Next.SAME_LATER),
    ("Unavailable", Next.SAME_LATER),
    ("503", Next.SAME_LATER),
    ("ReadTimeoutError", Next.SAME_LATER),
    ("ResponseParserError", Next.SAME_LATER),
    ("InvalidLaunchTemplateName.NotFoundException", Next.SAME_LATER),
    ("InvalidGroup.NotFound", Next.SAME_LATER),
    ("UnauthorizedOperation", Next.STOP),
    ("PendingVerification", Next.STOP),
    ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", Next.STOP),
    ("InvalidAMIID.NotFound", Next.STOP),
    ("IdempotentParameterMismatch", Next.STOP),
    ("ExpiredToken", Next.STOP),
    ("NoCredentialsError", Next.STOP),
    ("A code of next year", Next.STOP),
    ("", Next.STOP),
]


@pytest.mark.parametrize(("code", "meaning"), ANSWERS, ids=[code or "no code" for code, _ in ANSWERS])
def test_a_refusal_is_understood_by_its_code(code: str, meaning: Next) -> None:
    assert after_refusal(code) is meaning


def test_no_code_means_two_things() -> None:
    sets = [OUT_OF_CAPACITY, OVER_QUOTA, NOT_OFFERED, NOT_SEEN_YET, THROTTLED, IN_DOUBT, DENIED, BAD_CREDENTIALS]
    assert sum(map(len, sets)) == len(frozenset().union(*sets))


def test_spot_is_tried_everywhere_before_anything_on_demand() -> None:
    places = candidates(["a", "b"], {"s1": "", "s2": ""}, "spot")
    assert [(each.instance_type, each.subnet, each.market) for each in places] == [
        ("a", "s1", "spot"),
        ("a", "s2", "spot"),
        ("b", "s1", "spot"),
        ("b", "s2", "spot"),
        ("a", "s1", "on-demand"),
        ("a", "s2", "on-demand"),
        ("b", "s1", "on-demand"),
        ("b", "s2", "on-demand"),
    ]


def test_without_subnets_ec2_picks_one_and_repeats_are_tried_once() -> None:
    assert candidates(["a", "a"], {}, "on-demand") == (Candidate("a", None, "on-demand"),)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_grow_with_jitter_and_have_an_end(tries: int, draw: float) -> None:
    assert 0 < wait_after(tries, draw) <= LONGEST_WAIT_S
    assert wait_after(tries, draw) <= 2 * wait_after(tries + 1, draw)


REFUSALS = (
    Refusal(Candidate("c7i.4xlarge", "subnet-1", "spot"), "InsufficientInstanceCapacity", "none left"),
    Refusal(Candidate("m7i.large", None, "on-demand"), "VcpuLimitExceeded", ""),
)


def test_no_capacity_shows_what_was_tried_and_what_ec2_said() -> None:
    said = str(NoCapacity(region="eu-west-1", refusals=REFUSALS)).splitlines()
    assert said == [
        "no capacity in eu-west-1: all 2 candidates were refused. The account's quota 'Running On-Demand Standard (A, C, D, H, I, "
        "M, R, T, Z) instances' is used up: ask for more at "
        "https://eu-west-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas, or ask for fewer workers. More instance "
        "types or subnets give more candidates.",
        "TYPE         SUBNET    MARKET     ANSWER",
        "c7i.4xlarge  subnet-1  spot       InsufficientInstanceCapacity: none left",
        "m7i.large    default   on-demand  VcpuLimitExceeded",
    ]


def test_a_table_names_zones_and_the_subnets_of_a_zone_that_has_several() -> None:
    places = candidates(
        ["a"], {"subnet-1": "eu-west-1a", "subnet-2": "eu-west-1b", "subnet-3": "eu-west-1b"}, "on-demand"
    )
    unknown = Candidate("a", "subnet-4", "on-demand")
    assert table([Refusal(place, "Unsupported", "") for place in (*places, places[0], unknown)]).splitlines() == [
        "TYPE  ZONE                   MARKET     ANSWER",
        "a     eu-west-1a             on-demand  Unsupported",
        "a     eu-west-1b (subnet-2)  on-demand  Unsupported",
        "a     eu-west-1b (subnet-3)  on-demand  Unsupported",
        "a     eu-west-1a             on-demand  Unsupported",
        "a     subnet-4               on-demand  Unsupported",
    ]


def test_a_refusal_that_ends_the_hunt_says_what_to_do_and_what_was_tried_before() -> None:
    bad = Refusal(
        Candidate("c7i.4xlarge", "subnet-1", "spot"),
        "InvalidSubnetID.NotFound",
        "The subnet ID 'subnet-1' does not exist",
    )
    said = str(LaunchRefused(region="eu-west-1", refusals=(REFUSALS[0], bad))).splitlines()
    assert said[0] == (
        "EC2 in eu-west-1 refused to launch c7i.4xlarge: InvalidSubnetID.NotFound: The subnet ID 'subnet-1' does not exist. "
        "Correct the job variable subnets: ids of subnets in this region, or none, for the default VPC's"
    )
    assert said[1] == "Tried:"
    assert "\n" not in str(LaunchRefused(region="eu-west-1", refusals=(bad,)))
