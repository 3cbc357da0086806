"""What a child process answers to the parent that asked: a result, or a refusal by name and facts, in a file it was told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

ALIKE = 0.7
"""How alike two names are, from 0 to 1, when one was perhaps meant by the other."""


class Refused(Exception):
    """The request is at fault. `kind` names a class of `bootstrap.refusals`, `facts` are its facts."""

    def __init__(self, kind: str, **facts: Any) -> None:
        super().__init__(kind, facts)
        self.kind = kind
        self.facts = facts


def answer(path: Path, work: Callable[[], Any]) -> int:
    """Do the work and write `{"result": …}` or `{"refused": …}` at `path`, whole or not at all; the exit code.

    Anything else that `work` raises is a bug, ours or the user's: it keeps its traceback and leaves no answer.
    """
    try:
        said = {"result": work()}
    except Refused as refusal:
        said = {"refused": {"kind": refusal.kind, "facts": refusal.facts}}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(said))
    os.replace(part, path)  # noqa: PTH105 - the same, on every Python
    return 0


def near(name: str, names: list[str]) -> list[str]:
    """Up to three names that were perhaps meant: alike as a whole, or in what follows the package."""

    def alike(known: str) -> float:
        pairs = ((name.lower(), known.lower()), (_last(name), _last(known)))
        return max(SequenceMatcher(None, one, other).ratio() for one, other in pairs)

    close = sorted((known for known in set(names) if alike(known) >= ALIKE), key=lambda known: (-alike(known), known))
    return [known.removeprefix("inspect_ai/") for known in close[:3]]


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower()


def first_line(error: BaseException) -> str:
    """An exception for a person: its class and what it says, on one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}"[:600] if said else type(error).__name__
