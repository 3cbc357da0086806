"""Which secrets a request needs, and whether they can be had: by name, before anything is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.errors import RequestRefused


class SecretNotSet(RequestRefused):
    """A secret that the request names has no value here."""

    names: list[str]
    block: str | None

    def message(self) -> str:
        """One line: which secrets, and the two places where a value may be put."""
        these = ", ".join(self.names)
        place = f"the worker-secrets block {self.block!r}" if self.block else "a worker-secrets block"
        return f"no value for {these}: export it where the run starts, or put it into {place}"


def chosen(
    names: Sequence[str],
    environment: Mapping[str, str],
    *,
    kept: Mapping[str, str] | None = None,
    block: str | None = None,
) -> dict[str, str]:
    """All of `kept` (a block's values), and of `environment` the names that are asked for and aren't there.

    SecretNotSet names every one that has no value or an empty one.
    """
    values = dict(kept or {})
    for name in names:
        if not values.get(name) and environment.get(name):
            values[name] = environment[name]
    missing = [name for name in names if not values.get(name)]
    if missing:
        raise SecretNotSet(names=missing, block=block)
    return values
