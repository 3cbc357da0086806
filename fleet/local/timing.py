"""How long the local cloud takes for what takes minutes on AWS. One value, replaced as a whole through the control path."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, except where a field says otherwise."""

    pending: float = 0.05
    """From RunInstances to running, when the user data starts (EC2: 15–20)."""
    grace: float = 5.0
    """From TERM to KILL of what runs on an instance that ends."""
    minute: float = 60.0
    """Length of the minutes of `shutdown +N`."""
    notice: float = 120.0
    """From the notice of a spot interruption to the end of the instance."""
    credentials: int = 21_600
    """Life of an instance's credentials; new ones are handed out when a twelfth of it is left."""

    def changed(self, values: dict[str, Any]) -> Self:
        """With some fields replaced. ValueError: no such field, or not a number above or equal to zero."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"timing has no {name!r}, only {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ValueError(f"{name} is {value!r}, not seconds")
        return type(self)(**{**known, **values})
