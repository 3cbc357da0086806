"""The parent's side of the verb `recompute`: Inspect in the job environment computes what a merged log says as a whole.

`Recompute` is what `fleet.evals.merge` is given. The child is started first and imports while the parent copies; it
answers with a file, and its output goes to a file too, whose end an error quotes.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from fleet.errors import FleetError
from fleet.evals.merge import HeaderFacts

PATIENCE_S = 1800.0
"""How long the metrics of a whole eval may take: some draw thousands of samples of the scores, for minutes."""


class RecomputeFailed(FleetError):
    """Inspect didn't compute the merged log's header in the job environment. The results themselves are kept."""

    why: str
    lacked: str
    """What the run's jobs had and this process hadn't, for a person; empty: nothing."""

    def message(self) -> str:
        """One line, with the end of what the process said, and how to compute them with what was lacking."""
        said = f"the metrics of the merged log couldn't be computed in the job environment: {self.why}"
        return f"{said}. {remedy(self.lacked)}" if self.lacked else said


def remedy(lacked: str) -> str:
    """What may be the reason, and what helps, where metrics can't be computed and `lacked` is what the jobs had more."""
    return (
        f"The reason may be that this process lacks {lacked}. Start the same request again: it collects with all of them, and "
        "runs no finished job again"
    )


@dataclass(frozen=True, slots=True)
class Recompute:
    """Computes headers in a job environment."""

    environment: JobEnvironment
    env: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment of the process, keys among it; ours, if none is given."""
    lacked: str = ""
    """What the run's jobs had and this process hasn't, for a person."""
    patience: float = PATIENCE_S
    """Seconds."""

    @contextmanager
    def __call__(self, plan_log: Path) -> Iterator[RecomputeProcess]:
        """Start Inspect for a plan log, and end it at the end of the block, asked or not."""
        with tempfile.NamedTemporaryFile(prefix="recompute-", suffix=".log") as log:
            process = subprocess.Popen(
                job_process.command(self.environment, "recompute", str(plan_log.resolve())),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.environment.working_folder,
                env=job_process.variables(self.environment, os.environ if self.env is None else self.env),
                text=True,
                encoding="utf-8",
            )
            try:
                yield RecomputeProcess(process, Path(log.name), self.patience, self.lacked)
            finally:
                process.kill()
                process.communicate()  # without a bound: it was killed, and its output is a file, which holds up nobody


class RecomputeProcess:
    """One process, which computes one header."""

    def __init__(self, process: subprocess.Popen[str], log: Path, patience: float, lacked: str) -> None:
        self._process = process
        self._log = log
        self._patience = patience
        self._lacked = lacked

    def finish(self, records: Path, facts: HeaderFacts, out: Path) -> None:
        """Ask for the header, and wait for it. RecomputeFailed: the process ended, or took too long, without one."""
        order = {
            "records": str(records.resolve()),
            "out": str(out.resolve()),
            "status": facts.outcome.status,
            "error": facts.outcome.error,
            "total_samples": facts.total_samples,
            "started_at": facts.started_at,
            "completed_at": facts.completed_at,
        }
        try:
            self._process.communicate(json.dumps(order) + "\n", timeout=self._patience)
        except subprocess.TimeoutExpired as error:
            raise self._failed(f"no answer within {self._patience:.0f} s") from error
        if self._process.returncode != 0 or not out.is_file():
            raise self._failed(f"the process ended with exit code {self._process.returncode}")

    def _failed(self, why: str) -> RecomputeFailed:
        """The error: `why`, and the end of what the process said."""
        said = ": ".join(filter(None, [why, job_process.tail(self._log)]))
        return RecomputeFailed(why=said, lacked=self._lacked)
