"""How patient a pool worker is: its intervals, set by environment variables of the pool worker's own process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.errors import RequestRefused

PREFIX = "FLEET_POOL_"


class SettingRefused(RequestRefused):
    """An environment variable of the pool worker isn't a number of seconds."""

    name: str
    value: str

    def message(self) -> str:
        """One line: which variable, and what it takes."""
        return f"{self.name}={self.value!r} is refused: it takes a number of seconds above 0"


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Seconds, each set by `FLEET_POOL_<FIELD>` (`FLEET_POOL_POLL_SECONDS=0.5`)."""

    poll_seconds: float = 2.0
    """Between two looks at the instances and their flow runs."""
    idle_seconds: float = 10.0
    """The same while nothing is watched: only strangers with this pool's tag can turn up then."""
    sweep_seconds: float = 30.0
    """Between two searches for flow runs that nobody watches any more."""
    grace_seconds: float = 30.0
    """How long an instance may outlive its flow run, to send its log and power itself off."""
    missing_seconds: float = 60.0
    """How long EC2 may leave an instance out of its answers before it counts as gone."""
    launch_seconds: float = 300.0
    """How long one launch may wait for EC2 to stop throttling."""
    gather_seconds: float = 0.3
    """How long a launch waits for others of the same shape, to be asked for together."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> PoolSettings:
        """The settings in `environ`. SettingRefused: one isn't a number above 0."""
        values = {}
        for field in dataclasses.fields(cls):
            name = f"{PREFIX}{field.name.upper()}"
            if name in environ:
                values[field.name] = _seconds(name, environ[name])
        return cls(**values)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise SettingRefused(name=name, value=text) from error
    if not 0 < value < float("inf"):
        raise SettingRefused(name=name, value=text)
    return value
