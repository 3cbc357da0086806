"""What a check of an account found: one line for each thing, with why it matters and what helps where it isn't well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "missing", "different", "unknown"]
"""`unknown`: this identity may not look."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    """With its name: `bucket inspect-fleet-…`."""
    status: Status
    detail: str = ""
    """What is wrong."""
    why: str = ""
    """Why it matters."""
    helps: str = ""
    """The command, or the deed, that mends it."""

    @property
    def well(self) -> bool:
        """Whether nothing needs to be done."""
        return self.status == "ok"

    def line(self) -> str:
        """As a person reads it."""
        said = "; ".join(part for part in (self.detail, self.why, self.helps) if part)
        return f"{self.status:<9}  {self.what}{f': {said}' if said else ''}"


def to_mend(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are missing or different. What couldn't be looked at isn't among them: nobody knows."""
    return [finding for finding in findings if finding.status in ("missing", "different")]
