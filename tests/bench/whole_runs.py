"""Whole runs for figures: on one instance of a local cloud, with the times that it left there, and in plain Inspect.

Both get the same request, in the same job environment, and nothing of either is stubbed. Fleet and emulator share the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bootstrap import job_process
from bootstrap.environment import JobEnvironment, built
from bootstrap.runners import result_in
from fleet.account import names
from fleet.cache import cache_folder
from fleet.evals.documents import EvalManifest, JobId, JobResult
from fleet.evals.layout import Layout
from fleet.local import preset
from tests.cloud import EXAMPLES, CloudUnderTest, a_cloud
from tests.parity.compare import compare

TASK, MODEL = "fleet_examples/elements", "scripted/chemist"
KINDS = ("symbol", "number", "name", "block")
"""Of questions: 472 samples."""
TAKES = "taking jobs:"
"""How a worker's log begins its line of the moment in which it begins to ask for jobs."""
SPELT_OUT = {"is a default that the command `inspect` writes down": ("header.eval.config.log_shared",)}
LAYOUT = Layout(names.PREFIX)
RUN_S = 600.0
"""A run that takes longer hangs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An eval of short samples."""

    samples: int
    at_once: int
    """Samples that may run at a time, and as many calls of the model: no more than that in either way."""
    epochs: int = 1
    latency: float = 0.0
    jitter: float = 0.0
    """Seconds that the model takes to answer: at least, and up to so many more."""

    @property
    def model(self) -> list[str]:
        """The model, for either."""
        return ["--model", MODEL, "-M", f"latency={self.latency}", "-M", f"jitter={self.jitter}"]

    def of_the_fleet(self) -> list[str]:
        """For the command `fleet`."""
        return [
            *("run", TASK, "-T", f"kinds=[{', '.join(KINDS)}]", "--source", str(EXAMPLES)),
            *self.model,
            *("--eval-arg", f"limit={self.samples}", "--eval-arg", f"epochs={self.epochs}"),
            *("--eval-arg", f"max_samples={self.at_once}", "--generate-arg", f"max_connections={self.at_once}"),
        ]

    def of_inspect(self) -> list[str]:
        """For the command `inspect`."""
        return [
            *("eval", TASK, "-T", f"kinds={','.join(KINDS)}"),
            *self.model,
            *("--limit", str(self.samples), "--epochs", str(self.epochs)),
            *("--max-samples", str(self.at_once), "--max-connections", str(self.at_once)),
        ]


@dataclass(frozen=True, slots=True)
class OnAnInstance:
    """What a run of one instance left."""

    log: Path
    """The merged one."""
    environment: JobEnvironment
    results: Mapping[JobId, JobResult]
    takes: float
    """When its instance began to take jobs. Seconds since the epoch."""
    stored: Sequence[float]
    """When S3 had each result, in that order. Likewise, but in whole seconds, cut off: S3 says no more."""

    @property
    def begun(self) -> float:
        """When the first sample began, by the results; in whole seconds too."""
        return min(datetime.fromisoformat(result.started_at).timestamp() for result in self.results.values())


@contextmanager
def on_an_instance(asked: Asked, *options: str, **config: int) -> Iterator[OnAnInstance]:
    """Run it, with options of the command and of the fleet; its cloud is gone by then. SystemExit: it came to no good end."""
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as scratch:
        with a_cloud(f"bench-{os.getpid()}") as cloud:
            ran = _run(cloud, asked, options, config, Path(scratch))
        yield ran


def _run(
    cloud: CloudUnderTest, asked: Asked, options: Sequence[str], config: Mapping[str, int], folder: Path
) -> OnAnInstance:
    fleet = [part for name, value in {"max_workers": 1, **config}.items() for part in ("--ec2-arg", f"{name}={value}")]
    command = [*asked.of_the_fleet(), *options, *fleet, "--local-cloud", "--json", "--log-dir", str(folder)]
    done = cloud.fleet(*command, seconds=RUN_S)
    if done.code:
        raise SystemExit(f"the fleet's run ended with exit code {done.code}: {done.out[-2000:]} {done.err[-2000:]}")
    (one,) = done.report["evals"]
    body = cloud.aws("s3").get_object(Bucket=preset.BUCKET, Key=LAYOUT.manifest(one["eval_id"]))["Body"].read()
    manifest = EvalManifest.read(body)
    environment = built(manifest.environment, cache=cache_folder())
    assert environment is not None, "the run has built it"
    found = list(results_of(cloud, one["eval_id"], folder))
    results = {result.job: result for result, _ in found}
    if results.keys() != {job.job for job in manifest.jobs}:
        raise SystemExit(f"{len(results)} results of {len(manifest.jobs)} jobs")
    stored = tuple(sorted(when for _, when in found))
    return OnAnInstance(Path(one["log"]), environment, results, _takes(cloud, done.report["run"]), stored)


def results_of(cloud: CloudUnderTest, eval_id: str, folder: Path) -> Iterator[tuple[JobResult, float]]:
    """The summary of each result of an eval, and when S3 had it (whole seconds since the epoch). `folder` is for copies."""
    s3, copy = cloud.aws("s3"), folder / "result.eval"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=preset.BUCKET, Prefix=LAYOUT.results(eval_id))
    for entry in (entry for page in pages for entry in page["Contents"]):
        s3.download_file(preset.BUCKET, entry["Key"], str(copy))
        yield result_in(copy), entry["LastModified"].timestamp()


def _takes(cloud: CloudUnderTest, run: str) -> float:
    (worker,) = cloud.workers_of(run)
    wanted = {"logs": {"flow_run_id": {"any_": [worker["id"]]}}, "sort": "TIMESTAMP_ASC"}
    (line,) = (line for line in cloud.prefect("logs/filter", wanted) if TAKES in line["message"])
    return datetime.fromisoformat(line["timestamp"]).timestamp()


@dataclass(frozen=True, slots=True)
class Plain:
    """What plain Inspect left."""

    log: Path
    seconds: float
    """From the process's start to its end."""


def plainly(environment: JobEnvironment, asked: Asked, folder: Path, *options: str) -> Plain:
    """`inspect eval` in a new process. SystemExit: it failed."""
    command = [str(environment.python), "-m", "inspect_ai", *asked.of_inspect(), *options, "--log-dir", str(folder)]
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=environment.working_folder,
        env=job_process.variables(environment, os.environ),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    seconds = time.monotonic() - began
    logs = list(folder.glob("*.eval"))
    if done.returncode or len(logs) != 1:
        raise SystemExit(f"plain Inspect ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    return Plain(logs[0], seconds)


def check_equal(plain: Plain, ran: OnAnInstance) -> None:
    """SystemExit: the fleet's log isn't what plain Inspect writes."""
    found = compare(plain.log, ran.log, unequal=SPELT_OUT)
    if found.differences:
        raise SystemExit(
            f"{len(found.differences)} values differ: {json.dumps([str(it) for it in found.differences[:5]])}"
        )
