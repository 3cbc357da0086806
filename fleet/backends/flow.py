"""The flow `run_eval`, called in this process: what the places that Prefect orchestrates have in common."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from bootstrap.run_plan import RunPlan, planned_ahead
from fleet.backends.farewell import short_farewell
from fleet.errors import FleetError
from fleet.evals.listener import Listener, listener
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.importing import undisturbed


class RunCancelled(FleetError):
    """The run was cancelled in the UI."""

    run: str
    why: str

    def message(self) -> str:
        """One line."""
        return f"flow run {self.run} was cancelled: {self.why}"


LATER = ("prefect.flow_engine", "prefect.task_engine", "fastapi.encoders", "boto3")
"""What Prefect and our own adapters import only when they are called first."""


def import_flow() -> None:
    """Import what `call_run_eval` will, which takes seconds; what goes wrong is left to it.

    Prefect reads its settings then, so the environment must say by now where its server is. That one needn't answer yet.
    """
    with suppress(Exception), undisturbed():
        for name in ("flows.run_eval", *LATER):
            importlib.import_module(name)


def call_run_eval(
    request: EvalRequest, follower: Listener, *, plan: RunPlan | None = None, **parameters: Any
) -> RunReport:
    """Run the flow to its end, followed by `follower`, with its further `parameters` by name.

    `plan`: what was planned ahead. RunCancelled; what the flow raised.
    """
    with undisturbed():
        from prefect.logging.handlers import APILogHandler

        from flows.run_eval import run_eval

    tokens = (listener.set(follower), planned_ahead.set(plan))
    try:
        with short_farewell(follower.warn):
            state: Any = run_eval(request, **parameters, return_state=True)
    finally:
        listener.reset(tokens[0])
        planned_ahead.reset(tokens[1])
        # Prefect sends log lines in the background; a server that ends with the run must get the last ones first.
        APILogHandler().flush()
    if state.is_cancelled():
        raise RunCancelled(run=str(state.state_details.flow_run_id), why=state.message or "no reason given")
    report: Any = state.result(raise_on_failure=False)
    if isinstance(report, RunReport):  # a failed run has one too: it says what is missing
        return report
    raise report
