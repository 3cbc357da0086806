"""What pydantic keeps of an object beside its values, the set of the fields that were given: kept once for scores with equal ones.

Inspect makes four or five objects of each score of a log, and those sets are half of what they take: 230 bytes for up to
four fields, 740 for more. Nobody sees a difference: who asks a score for its set gets one of the score's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MemberDescriptorType
from typing import Any

from inspect_ai import scorer

_SLOT = "__pydantic_fields_set__"
_MODELS = ("Score", "SampleScore")
"""`EvalSampleScore`, and a user's own kinds of scores, inherit from the first."""


@contextmanager
def shared_field_sets() -> Iterator[None]:
    """In the block, scores share these sets. One that was made in it is of use only in it.

    Where a release of Inspect or pydantic keeps them otherwise, nothing is shared, and a merge takes the memory.
    """
    changed: list[type[Any]] = []
    for model in filter(None, (getattr(scorer, name, None) for name in _MODELS)):
        slot = getattr(model, _SLOT, None)
        if isinstance(slot, MemberDescriptorType):
            setattr(model, _SLOT, _sharing(slot))
            changed.append(model)
    try:
        yield
    finally:
        for model in changed:
            delattr(model, _SLOT)


def _sharing(slot: MemberDescriptorType) -> property:
    """In the place of pydantic's slot: holds a frozen set, the same for all that are equal, until someone asks for it.

    Who asks may be about to change it, as pydantic is when a field is assigned to.
    """
    shared: dict[frozenset[str], frozenset[str]] = {}

    def given(score: Any) -> set[str]:
        names = slot.__get__(score)
        if isinstance(names, frozenset):
            names = set(names)
            slot.__set__(score, names)
        own: set[str] = names
        return own

    def keep(score: Any, names: set[str]) -> None:
        frozen = frozenset(names)
        slot.__set__(score, shared.setdefault(frozen, frozen))

    return property(given, keep)
