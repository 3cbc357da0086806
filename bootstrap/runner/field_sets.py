"""What pydantic keeps of an object beside its values, the set of the fields that were given, kept once for all scores.

Inspect makes four or five objects of each score of a log, and those sets are half of what they take: 230 bytes for up to
four fields, 740 for more. Metrics, reducers and the log's writer look at values only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from inspect_ai.log import EvalSampleScore
from inspect_ai.scorer import SampleScore, Score

_ALL: dict[type[Any], set[str]] = {model: set(model.model_fields) for model in (Score, SampleScore, EvalSampleScore)}
"""All fields, so that a field that is assigned to later is in its object's set already."""

Made = TypeVar("Made", Score, SampleScore)


def slim(score: Made) -> Made:
    """The same object, with all its fields said to be given. One of another class, if only a derived one, stays as it is."""
    if (names := _ALL.get(type(score))) is not None:
        object.__setattr__(score, "__pydantic_fields_set__", names)
    return score


@contextmanager
def slim_scores() -> Iterator[None]:
    """In the block, whoever makes a score in this process makes it slim."""
    made_by = {model: model.__init__ for model in (Score, SampleScore)}  # the third inherits from the first
    for model, init in made_by.items():
        setattr(model, "__init__", _slimming(init))  # noqa: B010 - mypy takes no assignment to a method
    try:
        yield
    finally:
        for model, init in made_by.items():
            setattr(model, "__init__", init)  # noqa: B010


def _slimming(init: Any) -> Any:
    @functools.wraps(init)
    def made(self: Any, /, **data: Any) -> None:
        init(self, **data)
        slim(self)

    return made
