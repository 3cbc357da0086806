"""The commands with which an instance switches itself off: what their arguments mean, and the shims that take their place.

A shim tells the hypervisor by a FIFO and returns at once, as systemd's `shutdown` does. It opens the FIFO for reading
too, so that it never waits for a reader: user data that calls it in its EXIT trap must not hang when it is told to end.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

FIFO = "power"
COMMANDS = ("shutdown", "poweroff", "halt", "reboot")


@dataclass(frozen=True, slots=True)
class PowerRequest:
    """What an instance asked for. A later request takes the place of an earlier one."""

    kind: Literal["off", "reboot", "cancel"]
    minutes: float = 0.0


def read_power(command: str, arguments: Sequence[str], now: datetime) -> PowerRequest | None:
    """The meaning of one of COMMANDS (shutdown(8) of systemd). None: nothing is to happen, or it isn't understood."""
    options = [word for word in arguments if word.startswith("-")]
    words = [word for word in arguments if not word.startswith("-")]
    short = "".join(option[1:] for option in options if not option.startswith("--"))
    if command != "shutdown":
        return PowerRequest("reboot" if command == "reboot" else "off")
    if "k" in short:  # only warns the users
        return None
    if "c" in short:
        return PowerRequest("cancel")
    kind: Literal["off", "reboot"] = "reboot" if "r" in short or "--reboot" in options else "off"
    minutes = _minutes(words[0], now) if words else 1.0
    return None if minutes is None else PowerRequest(kind, minutes)


def _minutes(when: str, now: datetime) -> float | None:
    if when == "now":
        return 0.0
    number = when.removeprefix("+")
    if number.isdecimal():
        return float(number)
    hour, colon, minute = when.partition(":")
    if not (colon and hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60):
        return None
    at = now.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    return ((at if at > now else at + timedelta(days=1)) - now).total_seconds() / 60


def write_shims(folder: Path, *, fifo: Path, python: str) -> None:
    """Put COMMANDS, and `fleet-python` (this very interpreter), into `folder`, which goes first on an instance's PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    if not fifo.exists():
        os.mkfifo(fifo, 0o600)
    for command in COMMANDS:
        _write(folder / command, f"printf '%s\\n' \"{command} $*\" 1<>{shlex.quote(str(fifo))}\n")
    # Not a link: a virtual environment is found from the path by which its interpreter was called.
    _write(folder / "fleet-python", f'exec {shlex.quote(python)} "$@"\n')


def _write(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)
