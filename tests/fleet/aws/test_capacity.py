"""The table of answers: what each refusal of EC2 means, and where to look next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.capacity import (
    IN_DOUBT,
    LONGEST_WAIT_S,
    NOT_OFFERED,
    OUT_OF_CAPACITY,
    OVER_QUOTA,
    Candidate,
    Next,
    NoCapacity,
    Refusal,
    after_refusal,
    candidates,
    client_token,
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
    ("UnauthorizedOperation", Next.STOP),
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
    sets = [OUT_OF_CAPACITY, OVER_QUOTA, NOT_OFFERED, THROTTLED, IN_DOUBT, DENIED, BAD_CREDENTIALS]
    assert sum(map(len, sets)) == len(frozenset().union(*sets))


def test_spot_is_tried_everywhere_before_anything_on_demand() -> None:
    places = candidates(["a", "b"], ["s1", "s2"], "spot")
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
    assert candidates(["a", "a"], [], "on-demand") == (Candidate("a", None, "on-demand"),)


names = st.text(max_size=40)
places = st.builds(Candidate, names, st.none() | names.filter(bool), st.sampled_from(["spot", "on-demand"]))


@given(st.sets(st.tuples(names.filter(lambda name: "\0" not in name), places), min_size=2, max_size=20))
def test_each_candidate_of_each_attempt_has_a_token_of_its_own_that_ec2_takes(
    pairs: set[tuple[str, Candidate]],
) -> None:
    pairs = {pair for pair in pairs if "\0" not in f"{pair[1].instance_type}{pair[1].subnet}"}
    tokens = {client_token(attempt, place) for attempt, place in pairs}
    assert len(tokens) == len(pairs)
    assert all(len(token) <= 64 and token.isascii() for token in tokens)


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
        "no capacity in eu-west-1: all 2 candidates were refused. More instance types or subnets give more candidates.",
        "TYPE         SUBNET    MARKET     ANSWER",
        "c7i.4xlarge  subnet-1  spot       InsufficientInstanceCapacity: none left",
        "m7i.large    default   on-demand  VcpuLimitExceeded",
    ]
