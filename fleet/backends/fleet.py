"""The fleet: the flow `run_eval`, called in this process, with AWS and Prefect where the environment says they are.

Planning comes first, and beside it whatever brings the services up and the import of the flow, which takes as long: a request
that can't be run ends before a flow run exists.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from blocks.ec2_config import Ec2Config
from bootstrap.run_plan import RunPlan, plan_run
from fleet.backends import Backend
from fleet.backends.flow import call_run_eval, import_flow
from fleet.evals.cost import fleet_slots
from fleet.evals.delivery import check_log_dir
from fleet.evals.listener import Listener
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import chosen
from fleet.evals.setup_script import read_setup_script
from fleet.importing import beside, undisturbed

Services = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Begins to bring up what the run needs, and settles which server Prefect will take. What it answers waits for that and points
this process there; leaving it takes down what it brought up."""


@contextmanager
def as_configured() -> Iterator[Callable[[], None]]:
    """The services that the environment and the person's own configuration name."""
    yield lambda: None


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
        own = dict(os.environ)  # of the person: what the services change of it is none of a task's business
        with (
            tempfile.TemporaryDirectory(prefix="inspect-fleet-plan-") as scratch,
            self._services() as point_there,
            # Within the services: it makes Prefect's home, which may go with them.
            beside(import_flow) as wait_for_the_import,
        ):
            # A block's keys can be read only when Prefect is up; the flow plans with them then.
            plan = None if self._worker_secrets else self._plan(request, Path(scratch), own)
            wait_for_the_import()  # it reads the environment, which changes now
            point_there()
            return self._call(request, plan)

    def _plan(self, request: EvalRequest, folder: Path, env: Mapping[str, str]) -> RunPlan:
        slots = fleet_slots(self._config.max_workers, self._config.concurrency_per_worker)
        nonce = str(uuid.uuid4()) if self._config.new_fleet else ""
        return plan_run(request, folder, slots=slots, nonce=nonce, env=env, say=self._follower.stage)

    def _call(self, request: EvalRequest, plan: RunPlan | None) -> RunReport:
        self._check_blocks(request)
        for warning in plan.warnings if plan else ():
            self._follower.warn(warning)
        return call_run_eval(
            request,
            self._follower,
            plan=plan,
            config=self._config,
            account=self._account,
            worker_secrets=self._worker_secrets,
        )

    def _check_blocks(self, request: EvalRequest) -> None:
        """What the flow begins with, while there is no flow run yet. AccountUnknown; SecretsRefused."""
        with undisturbed():
            from blocks.account import fleet_account
            from blocks.secrets import run_secrets

        home = fleet_account(self._account)
        run_secrets(request, self._worker_secrets, home.parameter_place(home.settled(self._config).region))
