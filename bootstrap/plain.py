"""The local backend: a request as plain Inspect runs it, in its job environment, in one process, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from bootstrap.planner import answered, evaluated
from fleet.evals.request import EvalRequest

UNWIND_S = 60.0
"""Seconds that Inspect gets, after an interrupt, to close sandboxes and finish the log."""


@dataclass(frozen=True, slots=True)
class PlainLog:
    """One task with one model, run."""

    task: str
    model: str
    status: str
    """Inspect's: success, error, cancelled."""
    log: str
    """Path or address of the log; empty when it was cancelled before there was one."""
    error: str


def run_plain(
    request: EvalRequest,
    environment: JobEnvironment,
    log_dir: str,
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    rates: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> list[PlainLog]:
    """Run every task with every model, one after the other; the logs lie in `log_dir` (a folder or an address).

    With `say`, each line of Inspect's plain progress goes there; without, Inspect has the terminal, its live display
    included. EvalRefused: the request is at fault. PlannerDied: no answer. KeyboardInterrupt unwinds samples first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asking, answer, log = (folder / f"whole.{end}" for end in ("request.json", "answer.json", "log"))
    evals = [
        evaluated(request, index, request.eval_config) for index in range(len(request.tasks) * len(request.models))
    ]
    where = log_dir if "://" in log_dir else str(Path(log_dir).resolve())
    asking.write_text(json.dumps({"evals": evals, "log_dir": where, "rates": str(rates.resolve()) if rates else None}))
    answer.unlink(missing_ok=True)
    variables = job_process.variables(environment, os.environ if env is None else env)
    if say is None:
        variables.pop("INSPECT_DISPLAY")
    else:
        variables |= {"INSPECT_DISPLAY": "plain", "NO_COLOR": "1"}
    process = subprocess.Popen(
        job_process.command(environment, "whole", str(asking.resolve()), str(answer.resolve())),
        cwd=environment.working_folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=None if say is None else subprocess.PIPE,
        stderr=None if say is None else subprocess.STDOUT,
        text=True,
        errors="replace",
        # With lines read here, an interrupt reaches us alone and is passed on once: Inspect takes a second one for "now".
        start_new_session=say is not None,
    )
    try:
        with log.open("w") as kept:
            for line in process.stdout or ():
                kept.write(line)
                if say is not None and line.strip():
                    say(line.rstrip())
        code = process.wait()
    except BaseException:  # an interrupt most of all: the samples in flight unwind
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(UNWIND_S)
        process.kill()
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    return [PlainLog(**said) for said in answered(answer, f"exit code {code}", log)]
