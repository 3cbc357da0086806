"""Scores share the sets of their given fields, and nobody sees a difference."""

from __future__ import annotations

import importlib
import pickle
import sys
from copy import deepcopy
from typing import Any

import inspect_ai.log
import inspect_ai.scorer
import pytest
from inspect_ai.log import EvalSampleScore
from inspect_ai.scorer import SampleScore, Score, mean_score
from pydantic import BaseModel

from bootstrap.runner import field_sets
from bootstrap.runner.field_sets import shared_field_sets

SLOT: Any = vars(BaseModel)["__pydantic_fields_set__"]


class OwnScore(Score):
    """A user's own kind of score."""

    certain: bool = False


def made() -> list[Score | SampleScore]:
    """What Inspect makes of a score, the way it does, and what a user may."""
    score = Score(value=1.0, answer="a")
    reduced = mean_score()([score])
    return [
        score,
        reduced,
        SampleScore(score=reduced),
        EvalSampleScore(**reduced.__dict__, sample_id="s"),
        Score.model_validate({"value": 1, "explanation": "so"}),
        Score.model_construct(value=1),
        Score(value=1).model_copy(),
        OwnScore(value=1, certain=True),
    ]


def changed() -> list[Score]:
    """What has more fields than it was made with."""
    late = Score(value=1)
    late.reason = "late"
    return [late, Score(value=1).model_copy(update={"answer": "b"})]


def test_equal_sets_are_one_and_only_in_the_block() -> None:
    with shared_field_sets():
        assert all(SLOT.__get__(one) is SLOT.__get__(other) for one, other in zip(made(), made(), strict=True))
    assert type(SLOT.__get__(Score(value=0))) is set


def test_scores_have_given_the_fields_that_they_have_without() -> None:
    plain = [*made(), *changed()]
    with shared_field_sets():
        shared = [*made(), *changed()]
        assert shared == plain
        assert [one.model_dump(exclude_unset=True) for one in shared] == [
            one.model_dump(exclude_unset=True) for one in plain
        ]
        assert [one.model_dump_json() for one in shared] == [one.model_dump_json() for one in plain]
        assert [one.model_fields_set for one in shared] == [one.model_fields_set for one in plain]
        assert [pickle.loads(pickle.dumps(one)) for one in shared] == plain  # noqa: S301 - our own


def test_what_is_done_to_one_does_nothing_to_another() -> None:
    with shared_field_sets():
        one, other = (Score.model_validate({"value": 1}) for _ in range(2))
        copied = deepcopy(one)
        one.value, one.reason = 0, "mine"
        copied.model_fields_set.clear()
        assert one.model_fields_set == {"value", "reason"}
        assert copied.model_fields_set == set()
        assert (other.value, other.reason, other.model_fields_set) == (1, None, {"value"})


def test_a_kind_of_score_may_be_defined_in_the_block() -> None:
    with shared_field_sets():

        class Late(Score):
            extra: int = 0

        assert Late(value=1, extra=2).model_fields_set == {"value", "extra"}


def test_a_release_of_pydantic_that_has_no_such_slot_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_sets, "_SLOT", "__pydantic_moved__")
    with shared_field_sets():
        assert type(SLOT.__get__(Score(value=0))) is set


def test_a_release_of_pydantic_that_makes_the_set_when_asked_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    when_asked = property(lambda score: {"value"})
    monkeypatch.setattr(Score, "__pydantic_fields_set__", when_asked)
    with shared_field_sets():
        assert vars(Score)["__pydantic_fields_set__"] is when_asked
    assert vars(Score)["__pydantic_fields_set__"] is when_asked


def test_a_release_of_inspect_that_moved_a_score_shares_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(inspect_ai.scorer, "SampleScore")
    monkeypatch.delattr(inspect_ai.log, "EvalSampleScore")
    monkeypatch.delitem(sys.modules, field_sets.__name__)
    with importlib.import_module(field_sets.__name__).shared_field_sets():
        assert type(SLOT.__get__(Score(value=0))) is frozenset
        assert type(SLOT.__get__(SampleScore(score=Score(value=0)))) is set
