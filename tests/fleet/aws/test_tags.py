"""Tags fit EC2 whatever people name their things."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.tags import RESERVED_KEYS, key_of, legal_tags, value_of

KEY = r"[0-9a-zA-Z\-_+=,.@:]{1,128}"
"""EC2's own pattern for the tags of an instance that its metadata service shows, with the limit of any tag."""


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=400), max_size=8))
def test_every_key_can_stand_in_the_metadata_services_addresses(tags: dict[str, str]) -> None:
    found = legal_tags(tags)
    assert all(re.fullmatch(KEY, key) for key in found)
    assert not found.keys() & RESERVED_KEYS
    assert not any(key.lower().startswith("aws:") for key in found)
    assert all(len(value) <= 256 and re.fullmatch(r"[\w\s+\-=.:/@]*", value) for value in found.values())


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=400), max_size=8))
def test_what_is_legal_stays_as_it_is(tags: dict[str, str]) -> None:
    once = legal_tags(tags)
    assert legal_tags(once) == once


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("prefect.io/flow-run-name", "prefect.io:flow-run-name"),
        ("inspect-fleet:run", "inspect-fleet:run"),
        ("cost centre", "cost-centre"),
        ("", "-"),
        ("..", "-.."),
        ("AWS:mine", "-AWS:mine"),
        ("Ä", "-"),
    ],
)
def test_a_key_becomes_the_nearest_one(text: str, key: str) -> None:
    assert key_of(text) == key


def test_a_value_keeps_what_a_person_reads() -> None:
    assert value_of("swe 3/5: r.one@example.org") == "swe 3/5: r.one@example.org"
    assert value_of("a<b>\0") == "a-b--"
