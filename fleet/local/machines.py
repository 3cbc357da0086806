"""Instances as EC2 knows them: the port through which the hypervisor and the metadata service see the emulator.

`corrections_ec2` implements it on moto; tests implement it in a few lines. Neither user of it imports moto.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

End = Literal["user", "itself", "spot", "host"]
"""Who ended an instance: the API, its own shutdown, EC2 for want of spot capacity, or the failure of its host."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What EC2 says of one instance at one moment."""

    id: str
    region: str
    zone: str
    state: str
    image: str
    type: str
    architecture: str = "x86_64"
    market: Literal["on-demand", "spot"] = "on-demand"
    user_data: bytes = b""
    profile: str | None = None
    """ARN of its instance profile."""
    private_ip: str = "127.0.0.1"
    hostname: str = "localhost"
    mac: str = "02:00:00:00:00:01"
    launched: datetime = datetime.min
    launch_index: int = 0
    reservation: str = ""
    security_groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    tags_in_metadata: bool = False
    metadata_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of an instance's role, in a session that is named by the instance id, as EC2 does."""

    role: str
    access_key: str
    secret_key: str
    token: str
    updated: datetime
    expires: datetime


class Machines(Protocol):
    """The emulator's instances. Every call may block for some milliseconds; an unknown id is KeyError."""

    def get(self, instance: str) -> Machine:
        """The instance now."""

    def booted(self, instance: str) -> Machine | None:
        """Turn it from pending to running. None: it is not pending any more, so it must not boot."""

    def ending(self, instance: str, by: End) -> bool:
        """It begins to shut down: to stopping when it shuts itself down and was launched to stop then, else to
        shutting-down. False: it was ending already, or has ended."""

    def ended(self, instance: str) -> None:
        """Its last process is gone: terminated, or stopped."""

    def credentials(self, instance: str, seconds: int) -> Credentials | None:
        """New credentials of its role that last so long. None: it has no instance profile."""


class Watcher(Protocol):
    """What hears of instances from within the emulator's calls: it must not block, and not call back."""

    def launched(self, instance: str) -> None:
        """A new instance, pending."""

    def must_end(self, instance: str) -> None:
        """The API has told it to terminate or stop; `Machines.ended` is awaited."""
