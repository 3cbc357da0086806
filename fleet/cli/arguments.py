"""`key=value` as a person types it in a shell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleet.errors import RequestRefused


class ArgumentRefused(RequestRefused):
    """An option's value can't be read."""

    option: str
    text: str
    why: str

    def message(self) -> str:
        """One line: the option, what was given, what is wrong."""
        return f"{self.option} {self.text}: {self.why}"


def pairs(option: str, texts: Iterable[str]) -> dict[str, Any]:
    """`["epochs=2", "fail_on_error=false"]` as a mapping; values are read as YAML, as Inspect reads its own. ArgumentRefused."""
    import yaml

    read: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ArgumentRefused(option=option, text=text, why="write key=value")
        try:
            read[key.strip()] = yaml.safe_load(value) if value else ""
        except yaml.YAMLError as error:
            raise ArgumentRefused(
                option=option, text=text, why="the value is not YAML; put quotes around it"
            ) from error
    return read
