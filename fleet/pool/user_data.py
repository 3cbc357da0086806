"""The script an instance boots with: `user_data.sh` with what this one is told written into it. Pure; nothing is asked."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files

from fleet.errors import RequestRefused

LIMIT_BYTES = 16_384
"""EC2's limit, before it is encoded."""
MARK = "#: told\n"

LONGEST_BUCKET = 63
"""S3's limit."""
LONGEST_PREFIX = 64
LONGEST_PARAMETER = 200
"""Characters of what is told by name. SSM takes 1,011; with these the script stays below 4 KB whatever the names are."""


class UserDataTooLarge(RequestRefused):
    """The script is larger than EC2 takes; refused before anything is launched."""

    size: int
    largest: tuple[tuple[str, int], ...]
    """The largest variables, by name, with their bytes."""

    def message(self) -> str:
        """One line: how large, the limit, what takes the room."""
        named = ", ".join(f"{name} ({size:,} bytes)" for name, size in self.largest)
        return (
            f"user data of {self.size:,} bytes is refused: EC2 takes {LIMIT_BYTES:,}. The largest variables are {named}; "
            "move large values out of the job variable env"
        )


class CommandRefused(RequestRefused):
    """The command can't be split into words."""

    command: str
    why: str

    def message(self) -> str:
        """One line: the command, and why not."""
        return f"command {self.command!r} refused: {self.why}"


def user_data(environment: Mapping[str, str], command: str, *, max_hours: float) -> str:
    """The script. `command` is split as a shell splits it, and run without one; `max_hours` is the machine's lifetime.

    UserDataTooLarge, CommandRefused.
    """
    minutes = max(1, math.ceil(max_hours * 60))
    told = {"FLEET_LIFETIME_MINUTES": str(minutes), **environment}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in told.items()]
    lines.append(f"set -- {shlex.join(_words(command))}")
    template = files("fleet.pool").joinpath("user_data.sh").read_text(encoding="utf-8")
    head, _, body = template.partition(MARK)
    script = f"{head}{chr(10).join(lines)}\n{body}"
    size = len(script.encode())
    if size > LIMIT_BYTES:
        by_size = sorted(((name, len(value.encode())) for name, value in told.items()), key=lambda each: -each[1])
        raise UserDataTooLarge(size=size, largest=tuple(by_size[:3]))
    return script


def _words(command: str) -> Sequence[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandRefused(command=command, why=str(error).lower()) from error
    if not words:
        raise CommandRefused(command=command, why="it is empty")
    return words
