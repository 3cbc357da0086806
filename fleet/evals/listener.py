"""Who follows a run from outside the flow: the command's display, a test, or nobody.

The flow runs in the command's own process or far from any person. It tells whoever listens, and never asks who that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

from fleet.evals.cost import Estimate
from fleet.evals.progress import WorkerRow


class Seen(Protocol):
    """How far a run is, wherever it runs: of a fleet, `fleet.evals.progress.Progress`."""

    @property
    def fraction(self) -> float:
        """What is finished over what is planned, 0 to 1."""

    @property
    def workers(self) -> Sequence[WorkerRow]:
        """Its instances; none where another's machines run it."""

    def line(self) -> str:
        """All of it in one line."""


class Listener(Protocol):
    """What a follower of a run is told. Methods are quick and never raise."""

    def stage(self, name: str) -> None:
        """A new step of the run begins."""

    def progress(self, progress: Seen) -> None:
        """The run got further."""

    def warn(self, line: str) -> None:
        """Something a person should know."""

    def approve(self, estimate: Estimate) -> bool | None:
        """Whether to launch. None: nobody is here to ask, so the run waits for a person in the UI."""


class Nobody:
    """No follower: a run started from the UI or a schedule."""

    def stage(self, name: str) -> None:
        """Nobody hears it."""

    def progress(self, progress: Seen) -> None:
        """Nobody sees it."""

    def warn(self, line: str) -> None:
        """The flow's log has it."""

    def approve(self, estimate: Estimate) -> bool | None:
        """A person is asked in the UI."""
        return None


listener: ContextVar[Listener] = ContextVar("listener", default=Nobody())  # noqa: B039 - Nobody holds nothing
"""The follower of the run in this context."""
