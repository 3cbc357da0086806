"""One resource that AWS refuses keeps no other from what was asked for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleet.aws.batches import OF_ANY_CALL, OF_THE_CALL, in_one, refused_of
from fleet.aws.failures import AwsRefused, Denied, Throttled


class Ask:
    """A call that is refused wherever one of these is named."""

    def __init__(self, **codes: str) -> None:
        self.codes = codes
        self.calls: list[Sequence[str]] = []
        self.done: list[str] = []

    def __call__(self, names: Sequence[str]) -> None:
        self.calls.append(list(names))
        for name in names:
            if code := self.codes.get(name):
                kind = Denied if code == "AccessDenied" else Throttled if code == "SlowDown" else AwsRefused
                raise kind(service="s", operation="Do", code=code, target=", ".join(names), why="no")
        self.done += names


def test_what_nobody_refuses_is_one_call() -> None:
    ask = Ask()
    assert refused_of("abc", ask) == {}
    assert ask.calls == [["a", "b", "c"]]


def test_nothing_to_ask_for_is_no_call() -> None:
    ask = Ask()
    assert refused_of([], ask) == {}
    assert ask.calls == []


def test_where_some_are_refused_the_others_are_done_and_those_are_named_with_their_reasons() -> None:
    ask = Ask(a="AccessDenied", c="NotFound")
    refusals = refused_of("abcd", ask)
    assert {name: refusal.code for name, refusal in refusals.items()} == {"a": "AccessDenied", "c": "NotFound"}
    assert ask.done == ["b", "d"]
    one = in_one(refusals, where=" here")
    assert type(one) is Denied
    assert str(one) == "s Do of a, c here failed: AccessDenied: no"


def test_one_is_not_asked_for_twice() -> None:
    ask = Ask(a="AccessDenied")
    assert list(refused_of("a", ask)) == ["a"]
    assert len(ask.calls) == 1


def test_throttling_in_the_midst_is_one_s_own() -> None:
    ask = Ask(a="AccessDenied", b="SlowDown")
    assert set(refused_of("abc", ask)) == {"a", "b"}
    assert ask.done == ["c"]


@pytest.mark.parametrize("code", sorted(OF_THE_CALL))
def test_what_is_about_none_of_them_is_not_asked_again_one_by_one(code: str) -> None:
    ask = Ask(c=code)
    assert set(refused_of("abcdef", ask, at_once=2)) == {*"cdef"}
    assert ask.calls == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("code", sorted(OF_ANY_CALL))
def test_a_login_that_ends_in_the_midst_ends_the_asking_one_by_one(code: str) -> None:
    ask = Ask(a="AccessDenied", c=code)
    refusals = refused_of("abcdef", ask, at_once=5)
    assert {name: refusal.code for name, refusal in refusals.items()} == {
        "a": "AccessDenied",
        **dict.fromkeys("cdef", code),
    }
    assert ask.calls == [["a", "b", "c", "d", "e"], ["a"], ["b"], ["c"]]
