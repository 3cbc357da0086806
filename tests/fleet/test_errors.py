"""Errors travel between processes, say one line, and accept no fact too many."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest

import blocks
import bootstrap
import fleet
import flows
from fleet.errors import FleetError, RequestRefused


class Example(RequestRefused):
    """A family member for these tests."""

    what: str
    times: int

    def message(self) -> str:
        return f"{self.what} happened {self.times} times"


def every_error() -> Iterator[type[FleetError]]:
    for room in (fleet, blocks, bootstrap, flows):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if module.name.startswith("bootstrap.runner.") or module.name.endswith("__main__"):
                continue  # runs in the job environment, imports nothing of ours
            if module.name == "fleet.hawk.package":
                continue  # stands on Hawk's own client, an extra
            for _, member in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(member, FleetError) and member.__module__ == module.name:
                    yield member


def facts_for(kind: type[FleetError]) -> dict[str, Any]:
    """Plausible facts by the annotations, so that every error can be made."""
    facts: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if isinstance(base, type) and issubclass(base, FleetError):
            for name, hint in typing.get_type_hints(base, include_extras=False).items():
                if name != "exit_code" and name in inspect.get_annotations(base):
                    facts[name] = a_value(hint)
    return facts


def a_value(hint: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and args[-1] is not Ellipsis:
        return tuple(a_value(arg) for arg in args)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return (a_value(args[0]),) if origin is tuple else [a_value(args[0])]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {a_value(args[0]): a_value(args[1])}
    if origin is typing.Literal:
        return args[0]
    if args:
        return a_value(args[0])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        return hint(**{field.name: a_value(hints[field.name]) for field in dataclasses.fields(hint)})
    if inspect.isclass(hint) and hint in (int, float, bool):
        return hint(1)
    return "x" if hint in (str, Any, object) else str(hint)


def test_a_wrong_set_of_facts_is_a_bug() -> None:
    with pytest.raises(TypeError, match="takes the facts"):
        Example(what="it")
    with pytest.raises(TypeError, match="takes the facts"):
        Example(what="it", times=1, extra=2)


def test_an_error_says_its_line_and_keeps_its_facts() -> None:
    error = Example(what="it", times=2)
    assert str(error) == "it happened 2 times"
    assert (error.what, error.times, error.exit_code) == ("it", 2, 2)


@pytest.mark.parametrize("codec", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_every_error_survives_the_way_to_another_process(codec: Any) -> None:
    """Prefect pickles exceptions; one that can't be rebuilt would hide the reason of a failed run."""
    kinds = [*every_error(), Example]
    assert len(kinds) > 10
    for kind in kinds:
        try:
            error = kind(**facts_for(kind))
        except TypeError as problem:
            if "doesn't say what happened" in str(problem):
                continue  # a family's root, never raised itself
            raise
        again = codec.loads(codec.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error)
        assert str(error).strip()
