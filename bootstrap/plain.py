"""The local backend: a request as plain Inspect runs it, in its job environment, in one process, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from bootstrap.planner import answered, evaluated
from fleet.evals.request import EvalRequest

LOOK_S = 0.2
"""Seconds between two looks at whether a silent process has ended."""
LAST_OUTPUT_S = 2.0
"""Seconds for the rest of its output once it has ended: what it started may hold the pipe open for ever."""
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
        # With lines read here, an interrupt reaches us alone and is passed on once: Inspect takes a second one for "now".
        start_new_session=say is not None,
    )
    try:
        with log.open("w") as kept:
            for line in lines_of(process):
                kept.write(f"{line}\n")
                if say is not None and line.strip():
                    say(line.rstrip())
        code = process.wait()  # without a bound: an eval takes as long as it takes, and a person can interrupt it
    except BaseException:  # an interrupt most of all: the samples in flight unwind
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(UNWIND_S)
        process.kill()
        process.wait()  # without a bound: it was killed
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    return [PlainLog(**said) for said in answered(answer, f"exit code {code}", log)]


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What a process says, line by line, until it has ended; nothing, where its output goes elsewhere."""
    if process.stdout is None:
        return
    descriptor, rest = process.stdout.fileno(), b""
    until = float("inf")
    while (now := time.monotonic()) < until:
        if until == float("inf") and process.poll() is not None:
            until = now + LAST_OUTPUT_S
        if not select.select([descriptor], [], [], LOOK_S)[0]:
            continue
        if not (data := os.read(descriptor, 2**16)):
            break
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    if rest:
        yield rest.decode(errors="replace")
