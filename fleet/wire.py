"""The base of everything that travels: queue messages, objects in S3, flow parameters, files between processes.

Strict both ways, because a dropped typo changes what runs. A document says its version; any other version than ours,
older or newer, is refused before its fields are looked at, by a message that names both and the side to upgrade. A document
that lies in the bucket for months may name older versions that it goes on reading (`READS_TOO`).
"""

from __future__ import annotations

import json
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import FleetError


class DocumentRefused(FleetError):
    """A document isn't what it should be: not JSON, not its version, not its fields."""

    document: str
    why: str

    def message(self) -> str:
        """One line: which document, and why it was refused."""
        return f"{self.document} refused: {self.why}"


class Wire(BaseModel):
    """A strict, frozen, versioned document.

    A document on its own sets `VERSION` and a field `version: Literal[N] = N`; a part of one sets neither.
    """

    # NaN is a score like any other; the default would turn it into null.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants", allow_inf_nan=True)

    VERSION: ClassVar[int | None] = None
    READS_TOO: ClassVar[frozenset[int]] = frozenset()
    """Older versions that read as this one: every field that they lack has a default."""

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """The document in `text`. DocumentRefused: not JSON, another version, or wrong fields."""
        name = cls.__name__
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise DocumentRefused(document=name, why=f"it is not JSON ({error})") from error
        if not isinstance(raw, dict):
            raise DocumentRefused(document=name, why=f"it is a JSON {type(raw).__name__}, not an object")
        if cls.VERSION is not None:
            found = raw.get("version")
            if type(found) is int and found in cls.READS_TOO:
                text = json.dumps({**raw, "version": cls.VERSION})
            elif type(found) is not int or found != cls.VERSION:  # True == 1, so the type is compared too
                older = type(found) is int and found < cls.VERSION
                side = "what wrote it" if older or type(found) is not int else "this side"
                raise DocumentRefused(
                    document=name, why=f"its version is {found!r}, this release reads {cls.VERSION}: upgrade {side}"
                )
        del raw  # of a large document it takes more memory than the document itself
        try:
            # JSON mode: a tuple may come as a list, a datetime as its text.
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise DocumentRefused(document=name, why=explain(error)) from error

    def write(self) -> str:
        """The document as JSON; `read` gives back an equal one."""
        return self.model_dump_json()


def explain(error: ValidationError) -> str:
    """All complaints of pydantic in one line a person can act on, without the values (they may be secret)."""
    complaints = []
    for problem in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part) for part in problem["loc"]) or "the document"
        complaints.append(f"{place}: {problem['msg'][:1].lower()}{problem['msg'][1:]}")
    return "; ".join(complaints)
