"""How long a person waits: from `fleet run --local-cloud` to the first sample, from a boot to the first job, for `--help`.

The cache is warm: the job environment is built, the Prefect database is there, as after any earlier run. Each run brings up a
cloud of its own and takes it down.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean

from fleet.evals.eval_file import SUMMARIES, EvalFile
from tests.bench.figures import Figure
from tests.bench.instances import Sight, seen
from tests.cloud import ELEMENTS

TIMES = 3
HELP_TIMES = 7
SAMPLES = 16
COMMAND = (sys.executable, "-m", "fleet.cli.main")
REQUEST = ("run", *ELEMENTS, "--eval-arg", f"limit={SAMPLES}", "--ec2-arg", "new_fleet=true", "--local-cloud", "--json")
"""As a person would ask for it: the local cloud's own fleet of two instances."""
STEPS = {"cloud_s": "Local cloud is up", "controller_s": "Launching "}
"""Parts of the start, each up to the line that the command says then."""


@dataclass(frozen=True, slots=True)
class Start:
    """One run of the command; seconds."""

    first_sample: float
    parts: dict[str, float]
    instances: tuple[Sight, ...]


def figures() -> Iterator[Figure]:
    """Figures of the start."""
    yield Figure("cli.help_s", tuple(help_seconds() for _ in range(HELP_TIMES)), 0.5)
    with tempfile.TemporaryDirectory(prefix="bench-start-") as scratch:
        folder = Path(scratch)
        run([*REQUEST, "--ec2-arg", "estimate=true"], folder)  # makes the cache warm
        starts = [a_start(folder / str(number)) for number in range(TIMES)]
    parts = {name: mean(start.parts[name] for start in starts) for name in starts[0].parts}
    yield Figure("start.first_sample_s", tuple(start.first_sample for start in starts), 20, parts=parts)
    sights = [sight for start in starts for sight in start.instances if sight.taken]
    yield Figure("boot.ready_s", tuple(sight.ready for sight in sights), 6, parts=boot_parts(sights))


def help_seconds() -> float:
    """Of `fleet --help`, from the process's start to its end."""
    began = time.monotonic()
    said = subprocess.run([*COMMAND, "--help"], check=True, capture_output=True, text=True).stdout
    took = time.monotonic() - began
    if "Run Inspect evals on a fleet" not in said:
        raise SystemExit(f"the help says: {said}")
    return took


def a_start(folder: Path) -> Start:
    """Run the request on a cloud of its own. SystemExit: not every sample was done."""
    began = time.time()
    said, sights, log = run(REQUEST, folder)
    with EvalFile(log) as whole:
        samples = json.loads(whole.read(SUMMARIES))
    if len(samples) != SAMPLES or not all(sample["completed"] and not sample.get("error") for sample in samples):
        raise SystemExit(f"{len(samples)} of {SAMPLES} samples are in {log}, or not all of them went well")
    at_work = [sight for sight in sights.values() if sight.taken is not None]
    first = min(datetime.fromisoformat(sample["started_at"]).timestamp() for sample in samples)
    steps = {name: next(when for when, line in said if text in line) for name, text in STEPS.items()}
    steps["launch_s"] = min(sight.started for sight in sights.values())
    steps["boot_s"] = min(sight.taken or first for sight in at_work)
    steps["runner_s"] = first
    ends = [began, *steps.values()]
    parts = {name: end - start for name, start, end in zip(steps, ends, ends[1:], strict=False)}
    return Start(first - began, parts, tuple(at_work))


def run(request: Sequence[str], folder: Path) -> tuple[list[tuple[float, str]], dict[str, Sight], Path]:
    """Run the command to its end: what it said and when, what was seen of its instances, the log. SystemExit: it failed."""
    with tempfile.TemporaryFile("w+") as report:
        command = subprocess.Popen(
            [*COMMAND, *request, "--log-dir", str(folder)], stdout=report, stderr=subprocess.PIPE, text=True
        )
        with seen(f"run-{command.pid}") as sights, command:
            said = [(time.time(), line) for line in command.stderr or ()]
        if command.returncode:
            raise SystemExit(f"{' '.join(request)} ended with exit code {command.returncode}:\n{_text(said)}")
        report.seek(0)
        evals = json.load(report)["evals"]
    return said, sights, Path(evals[0]["log"] if evals else folder)


def boot_parts(sights: Sequence[Sight]) -> dict[str, float]:
    """Means of what an instance says on its way to its first job."""
    ends = {
        "code_s": [sight.heard(" boots") for sight in sights],
        "prefect_s": [sight.heard("git knows") for sight in sights],
        "steps_s": [sight.heard("taking jobs") for sight in sights],
        "take_s": [sight.taken or 0.0 for sight in sights],
    }
    starts = [[sight.started for sight in sights], *ends.values()]
    return {
        name: mean(end - start for start, end in zip(before, after, strict=True))
        for (name, after), before in zip(ends.items(), starts, strict=False)
    }


def _text(said: Sequence[tuple[float, str]]) -> str:
    return "".join(line for _, line in said[-20:])
