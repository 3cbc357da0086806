from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.parameter_rules import (
    LONGEST_NAME,
    TIER_BYTES,
    SecretsTooLarge,
    document,
    name_problem,
    tier_for,
    values_in,
)
from fleet.errors import RequestRefused

REGION = "us-east-2"
ARN = len("arn:aws:ssm:us-east-2:111122223333:parameter")
STANDARD, ADVANCED = TIER_BYTES["Standard"], TIER_BYTES["Advanced"]
texts = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from('{}"\\\n\u007b')), max_size=300)
entries = st.dictionaries(texts.filter(bool), texts, max_size=8)


@given(entries)
def test_what_is_stored_is_read_back_and_nests_nothing(values: dict[str, str]) -> None:
    """SSM takes `{{…}}` in a value for another parameter's name."""
    assert values_in(document(values)) == values
    assert "{{" not in document(values)


@given(st.dictionaries(texts.filter(bool), st.text(min_size=0, max_size=3000), max_size=5), st.booleans())
def test_the_tier_holds_what_is_stored_and_is_the_cheapest_that_does(values: dict[str, str], advanced: bool) -> None:
    size = len(document(values).encode())
    limit = ADVANCED if advanced else STANDARD
    if size <= limit:
        assert tier_for(values, advanced=advanced) == ("Standard" if size <= STANDARD else "Advanced")
        return
    with pytest.raises(SecretsTooLarge) as caught:
        tier_for(values, advanced=advanced)
    assert (caught.value.size, caught.value.limit) == (size, limit)


@pytest.mark.parametrize(("letter", "width"), [("x", 1), ("ü", 2), ("🔑", 4), ('"', 2), ("\n", 2)])
@pytest.mark.parametrize(("advanced", "limit"), [(False, STANDARD), (True, ADVANCED)])
def test_the_limit_is_counted_in_bytes_as_they_are_stored(letter: str, width: int, advanced: bool, limit: int) -> None:
    fits = (limit - len('{"K":""}')) // width
    tier_for({"K": letter * fits}, advanced=advanced)
    with pytest.raises(SecretsTooLarge):
        tier_for({"K": letter * (fits + 1)}, advanced=advanced)


def test_the_largest_entries_are_named_and_no_value() -> None:
    values = {"SMALL": "x" * 100, "GOOGLE_CREDENTIALS": "y" * 4000, "MIDDLE": "z" * 1000, "TINY": "z"}
    with pytest.raises(SecretsTooLarge) as caught:
        tier_for(values, advanced=False)
    message = str(caught.value)
    assert "the largest: GOOGLE_CREDENTIALS (4,000 bytes), MIDDLE (1,000 bytes), SMALL (100 bytes)" in message
    assert "holds 4,096" in message
    assert "`advanced_parameters` in the Fleet Account block allows 8,192" in message
    assert "yyy" not in message
    assert "TINY" not in message
    assert isinstance(caught.value, RequestRefused)


@pytest.mark.parametrize(("size", "advanced"), [(9000, False), (9000, True)])
def test_what_no_tier_holds_is_not_said_to_fit_one(size: int, advanced: bool) -> None:
    with pytest.raises(SecretsTooLarge) as caught:
        tier_for({"linux": "x" * size}, advanced=advanced, what="the values of the setting linux")
    assert str(caught.value).startswith("the values of the setting linux take 9,012 bytes")
    assert "advanced_parameters" not in str(caught.value)
    assert "largest" not in str(caught.value), "there is only one"


@pytest.mark.parametrize("text", ["not json", '["x"]', '{"KEY": ["x"]}', "null", ""])
def test_something_else_is_no_document(text: str) -> None:
    assert values_in(text) is None
    assert values_in(json.dumps({"K": "v"})) == {"K": "v"}


LONGEST = LONGEST_NAME - ARN


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/inspect-fleet/instances/run/i-0.env.linux_2", ""),
        ("/a" * 15, ""),
        ("/" + "x" * (LONGEST - 1), ""),
        ("/" + "x" * LONGEST, "with the ARN before it, it has 1,012 characters, 1,011 are the most"),
        ("/a" * 16, "it has 16 levels, 15 are the most"),
        ("a/b", "must begin with a slash"),
        ("/a//b", "a level of it is empty"),
        ("/a/", "a level of it is empty"),
        ("/a/my setting", "' ' is none of"),
        ("/a/é", "'é' is none of"),
        ("/a/$x", "'$' is none of"),
        ("/aws-fleet/x", "AWS's own"),
        ("/SSMfleet/x", "AWS's own"),
        ("/fleet/aws/ssm", ""),
    ],
)
def test_a_name_that_ssm_does_not_take_is_told_why(name: str, why: str) -> None:
    """PutParameter's rules for `Name`; the length counts the ARN before it."""
    problem = name_problem(name, REGION)
    assert bool(problem) == bool(why)
    assert why in problem
    assert not problem or name in problem


def test_the_arn_that_counts_is_that_of_the_partition() -> None:
    name = "/" + "x" * (LONGEST - 1)
    assert not name_problem(name, "eu-west-2")
    assert name_problem(name, "cn-north-1")
    assert name_problem(name, "us-gov-west-1")
