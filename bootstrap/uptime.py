"""Seconds since this instance's boot began, the same clock in every process of it.

`boot` marks the instant and hands it on by the environment; every step that a person reads says how far it is from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

MARK = "FLEET_BOOTED"
"""Environment variable: the instant of boot by the monotonic clock, which all processes of a machine share."""

_LOADED = time.monotonic()


def mark() -> str:
    """The value of `MARK` for the processes that this one starts: its own mark, or else the moment it was loaded."""
    return os.environ.get(MARK) or f"{_LOADED:.3f}"


def uptime(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds since boot; since this process was loaded where nothing marked it (or marked it with no number)."""
    try:
        return max(0.0, time.monotonic() - float(environ[MARK]))
    except (KeyError, ValueError):
        return time.monotonic() - _LOADED


def stamp() -> str:
    """`[+12.3s]`, to begin a line with."""
    return f"[+{uptime():.1f}s]"
