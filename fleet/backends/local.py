"""This machine: plain Inspect in the job environment, one process, no Prefect and no AWS."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from bootstrap.plain import PlainLog, run_plain
from bootstrap.run_plan import job_environment
from bootstrap.setting_values import values_in_place
from fleet.backends import Backend
from fleet.cache import cache_folder
from fleet.evals.delivery import check_log_dir
from fleet.evals.listener import Listener
from fleet.evals.log_report import log_report, read_header
from fleet.evals.rates import rates_file
from fleet.evals.report import EvalReport, RunReport, outcome_of
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import chosen
from fleet.evals.setting_values import setting_values


class LocalBackend(Backend):
    """Runs requests as `inspect eval` would, in the same job environment as the fleet."""

    def __init__(self, follower: Listener) -> None:
        self._follower = follower

    def run(self, request: EvalRequest, *, upload: bool = True) -> RunReport:
        """See `Backend.run`. Samples are not resumed: plain Inspect has `eval-retry` for that.

        Without `upload`, or a place for them, the logs stay in `logs` in the cache folder, as the report says.
        """
        began = time.monotonic()
        check_log_dir(request.log_dir)
        chosen(request.secrets, os.environ)
        values = setting_values(request.settings)
        with tempfile.TemporaryDirectory(prefix="inspect-fleet-local-") as scratch:
            folder = Path(scratch)
            rates = rates_file(request.model_cost_config, folder)
            ground = job_environment(request, folder, self._follower.stage)
            for warning in ground.warnings:
                self._follower.warn(warning)
            self._follower.stage("Running")
            log_dir = request.log_dir if upload and request.log_dir else str(cache_folder() / "logs")
            with values_in_place(ground.environment, values):
                logs = run_plain(request, ground.environment, log_dir, folder, rates=rates, say=self._follower.stage)
        evals = [_report(log) for log in logs]
        return RunReport(
            run="", outcome=outcome_of(evals), evals=evals, seconds=round(time.monotonic() - began, 1), cost=0.0
        )


def _report(log: PlainLog) -> EvalReport:
    header = read_header(log.log) if log.log else {}
    return log_report(header, task=log.task, model=log.model, status=log.status, log=log.log, error=log.error)
