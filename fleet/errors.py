"""The root of every error that a person can do something about.

An error carries facts as attributes and says itself in one line: what, where, why, and what helps. Families stand in the
room that raises them; each belongs to one thing a person can fix. A bug of ours is never one of these: it keeps its
traceback.

Prefect moves exceptions between processes by pickling, so an error rebuilds itself from its facts alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar


class FleetError(Exception):
    """What went wrong, as facts named by the class's annotations.

    A subclass annotates its facts and says them in `message()`. `TypeError` for a fact too many or too few: that is a bug here.
    """

    exit_code: ClassVar[int] = 1
    """What the command `fleet` ends with: 1 failed, 2 the request is at fault, 3 ran but incomplete."""

    def __init__(self, **facts: Any) -> None:
        wanted = _facts_of(type(self))
        if facts.keys() != wanted:
            raise TypeError(f"{type(self).__name__} takes the facts {sorted(wanted)}, not {sorted(facts)}")
        self.__dict__.update(facts)
        super().__init__(self.message())

    def message(self) -> str:
        """The one line a person reads."""
        raise TypeError(f"{type(self).__name__} doesn't say what happened")

    def __str__(self) -> str:
        return self.message()

    def clear_of(self, hide: Callable[[str], str]) -> None:
        """Put each fact through `hide`, which takes secrets out: what a program said may quote one."""
        for name in _facts_of(type(self)):
            if isinstance(self.__dict__[name], str):
                self.__dict__[name] = hide(self.__dict__[name])
        self.args = (self.message(),)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {name: self.__dict__[name] for name in _facts_of(type(self))})


class RequestRefused(FleetError):
    """The request can't be run as it stands; raised before anything was created. The person changes the request."""

    exit_code = 2


def _facts_of(kind: type[FleetError]) -> set[str]:
    return {
        name
        for base in kind.__mro__
        if issubclass(base, FleetError)
        for name in inspect.get_annotations(base)
        if name != "exit_code"
    }


def _rebuild(kind: type[FleetError], facts: dict[str, Any]) -> FleetError:
    return kind(**facts)
