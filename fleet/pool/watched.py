"""What an observer watches, and what it needs of the rooms around it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import anyio

from fleet.aws.session import Aws
from fleet.pool.verdict import Settle

if TYPE_CHECKING:
    import logging

    from prefect.client.schemas.objects import FlowRun
    from prefect.logging.loggers import LoggingAdapter

    from fleet.pool.run_states import RunView

    Logger = logging.Logger | LoggingAdapter

EVER = datetime.datetime.min.replace(tzinfo=datetime.UTC)
"""Earlier than any launch."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How one instance is watched."""

    aws: Aws
    boot_seconds: float
    log_folder: str | None = None


@dataclass(eq=False, slots=True)
class Watched:
    """One instance, the flow run it works for, and what was seen of them."""

    run_id: UUID
    instance_id: str
    terms: Terms
    born: float
    """When it was launched, by the observer's clock."""
    launched_at: datetime.datetime = EVER
    """The same by EC2's clock; EVER where only the flow run's record names it."""
    adopted: bool = False
    superseded: bool = False
    settled: Settle | None = None
    """The state that was set for its end."""
    settled_why: str = ""
    missing_since: float | None = None
    over_since: float | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    """Set when nothing is left to watch: the instance is gone, and the flow run is where it belongs."""


class Runs(Protocol):
    """Flow runs (`RunStates`, or a fake)."""

    async def read(self, ids: Sequence[UUID]) -> dict[UUID, RunView]:
        """These flow runs, by id; those that Prefect doesn't know are left out."""

    async def at_work(self, pool: str) -> list[RunView]:
        """The flow runs of a work pool that may have an instance."""

    async def crash(self, run_id: UUID, why: str, *, interrupted: bool = False) -> bool:
        """Set Crashed with the reason; named as an interruption, if it was one. Whether it is Crashed by this call."""

    async def cancel(self, run_id: UUID, why: str) -> bool:
        """Set Cancelled. Whether it is Cancelled by this call."""

    async def record(self, run_id: UUID, infrastructure: str) -> None:
        """Write down on the flow run what it runs on."""

    async def schedule_again(self, run_id: UUID, why: str) -> None:
        """Have a pool worker take up a run, if it is being submitted still."""


class Host(Protocol):
    """The pool worker, as far as its observer needs it."""

    def pool(self) -> tuple[str, str] | None:
        """Id and name of the work pool; None before the first word with Prefect's server."""

    async def home(self) -> Sequence[Aws]:
        """Where strangers with this pool's tag are looked for, whether or not anything runs there."""

    async def terms(self, run: FlowRun | None, region: str) -> Terms:
        """How an adopted instance is watched."""

    def submitting(self) -> frozenset[UUID]:
        """The flow runs that this pool worker has taken up and not launched yet."""

    async def is_alone(self) -> bool:
        """Whether the work pool has no other worker at work."""

    def log_of(self, run: FlowRun) -> Logger:
        """The log of a flow run."""
