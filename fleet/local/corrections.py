"""Where moto 5.2.5 isn't AWS, and this project would notice. Each correction names the reason and AWS's own rule.

They reach into moto's internals, so moto is pinned exactly; another release is refused, not hoped for. The corrections
of one service or subject stand together, in `corrections_*`; `corrections_start` is what moto is told before it is imported, and a
lean import. tests/fleet/local holds one contract test for each rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleet.errors import FleetError

MOTO = "5.2.5"


class EmulatorUnknown(FleetError):
    """Another release of moto is installed than the one that is corrected here."""

    found: str

    def message(self) -> str:
        """One line: what is there, what is needed, and the way to it."""
        return f"the local cloud needs moto {MOTO}, not {self.found}: install from requirements.lock"


def check_release() -> None:
    """EmulatorUnknown unless moto is the release whose internals are corrected."""
    import moto

    if moto.__version__ != MOTO:
        raise EmulatorUnknown(found=moto.__version__)


def replace(owner: Any, **functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Put functions in the place of `owner`'s own, and return those. AttributeError: it has no such function."""
    own = {name: getattr(owner, name) for name in functions}
    for name, function in functions.items():
        setattr(owner, name, function)
    return own
