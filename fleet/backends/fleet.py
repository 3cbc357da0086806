"""The fleet: the flow `run_eval`, called in this process, with AWS and Prefect where the environment says they are.

Planning comes first, and beside it whatever brings the services up: a request that can't be run ends before a flow run exists.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from blocks.ec2_config import Ec2Config
from bootstrap.run_plan import RunPlan, plan_run, planned_ahead
from fleet.backends import Backend
from fleet.backends.farewell import short_farewell
from fleet.errors import FleetError
from fleet.evals.cost import fleet_slots
from fleet.evals.delivery import check_log_dir
from fleet.evals.listener import Listener, listener
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import chosen
from fleet.evals.setup_script import read_setup_script
from fleet.importing import undisturbed

Services = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Begins to bring up what the run needs. What it answers waits for that and points this process there; leaving it takes down
what it brought up."""


@contextmanager
def as_configured() -> Iterator[Callable[[], None]]:
    """The services that the environment and the person's own configuration name."""
    yield lambda: None


class RunCancelled(FleetError):
    """The run was cancelled in the UI."""

    run: str
    why: str

    def message(self) -> str:
        """One line."""
        return f"flow run {self.run} was cancelled: {self.why}"


class FleetBackend(Backend):
    """Runs requests on EC2 instances through Prefect."""

    def __init__(
        self,
        config: Ec2Config,
        follower: Listener,
        *,
        services: Services = as_configured,
        account: str = "default",
        worker_secrets: str | None = None,
    ) -> None:
        self._config = config
        self._follower = follower
        self._services = services
        self._account = account
        self._worker_secrets = worker_secrets

    def run(self, request: EvalRequest, *, upload: bool = True) -> RunReport:
        """See `Backend.run`. Also RunCancelled."""
        read_setup_script(self._config.worker_setup)
        check_log_dir(request.log_dir)
        if not self._worker_secrets:
            chosen(request.secrets, os.environ)
        if not upload:
            request = request.model_copy(update={"log_dir": None})
        with tempfile.TemporaryDirectory(prefix="inspect-fleet-plan-") as scratch, self._services() as point_there:
            # A block's keys can be read only when Prefect is up; the flow plans with them then.
            plan = None if self._worker_secrets else self._plan(request, Path(scratch))
            point_there()
            return self._call(request, plan)

    def _plan(self, request: EvalRequest, folder: Path) -> RunPlan:
        slots = fleet_slots(self._config.max_workers, self._config.concurrency_per_worker)
        nonce = str(uuid.uuid4()) if self._config.new_fleet else ""
        return plan_run(request, folder, slots=slots, nonce=nonce, say=self._follower.stage)

    def _call(self, request: EvalRequest, plan: RunPlan | None) -> RunReport:
        # Prefect reads its settings when it is imported, so that waits until the environment says where the server is.
        with undisturbed():
            from prefect.logging.handlers import APILogHandler

            from flows.run_eval import run_eval

        for warning in plan.warnings if plan else ():
            self._follower.warn(warning)
        tokens = (listener.set(self._follower), planned_ahead.set(plan))
        try:
            with short_farewell(self._follower.warn):
                state: Any = run_eval(request, self._config, self._account, self._worker_secrets, return_state=True)
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
