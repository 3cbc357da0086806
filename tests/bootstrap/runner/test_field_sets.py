"""Scores share what nobody reads of them, and are what they would be otherwise."""

from __future__ import annotations

from copy import deepcopy

from inspect_ai.log import EvalSampleScore
from inspect_ai.scorer import SampleScore, Score, mean_score

from bootstrap.runner.field_sets import slim, slim_scores


class OwnScore(Score):
    """A user's own kind of score."""

    certain: bool = False


def made() -> list[Score | SampleScore]:
    """What Inspect makes of a score, the way it does."""
    score = Score(value=1.0, answer="a")
    reduced = mean_score()([score])
    return [score, reduced, SampleScore(score=reduced), EvalSampleScore(**reduced.__dict__, sample_id="s")]


def test_scores_share_a_set_only_in_the_block() -> None:
    with slim_scores():
        one, other, after = made(), made(), Score(value=0)
    assert all(a.model_fields_set is b.model_fields_set for a, b in zip(one, other, strict=True))
    assert Score(value=0).model_fields_set == {"value"}
    assert after.model_fields_set == set(Score.model_fields)


def test_scores_are_equal_and_dump_as_without() -> None:
    with slim_scores():
        slimmed = made()
    assert slimmed == made()
    assert [one.model_dump_json() for one in slimmed] == [one.model_dump_json() for one in made()]


def test_what_is_done_to_one_does_nothing_to_another() -> None:
    one, other = (slim(Score.model_validate({"value": 1})) for _ in range(2))
    names = set(other.model_fields_set)
    one.value, one.reason = 0, "mine"
    copied = deepcopy(one)
    copied.model_fields_set.clear()
    assert (other.value, other.reason, other.model_fields_set) == (1, None, names)


def test_derived_scores_stay_as_they_are() -> None:
    with slim_scores():
        assert OwnScore(value=1, certain=True).model_fields_set == {"value", "certain"}
