"""Where an eval runs: on this machine or on the fleet, behind one interface.

The command chooses one; what it asks of them is the same, and so is what they answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest


class Backend(ABC):
    """A place where evals run."""

    def resolvable(self, name: str) -> bool:
        """Whether the task or solver `name` is looked up before the run starts; elsewhere it is looked up where it runs."""
        return True

    @abstractmethod
    def run(self, request: EvalRequest, *, upload: bool = True) -> RunReport:
        """Run the request to its end and say what it came to, one log for each task and model.

        `upload`: deliver the logs to the request's `log_dir`; else they stay where they were made, as the report says.
        RequestRefused, before anything is created, for what the person must change; another FleetError when it failed.
        """
