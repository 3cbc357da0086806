"""The merge beside the naive way: read each log with Inspect, write one. Same input, one run, each in its own process.

`python -m tests.bench.merge [JOBS]`. The input is made here: one-sample logs of real size, with text that compresses as
transcripts do.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure

JOBS = 2000
SAMPLE_BYTES = 205_000
"""Of a sample's JSON: a few dozen messages with their events."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What one way took."""

    seconds: float
    peak_mb: float
    """Of the measured process, without children."""
    child_peak_mb: float


@dataclass(frozen=True, slots=True)
class Result:
    """The comparison, for `python -m tests.bench`."""

    merge: Measure
    naive: Measure

    def figures(self) -> Iterator[Figure]:
        """As `python -m tests.bench` has them."""
        took = {"ours_s": self.merge.seconds, "plain_s": self.naive.seconds, "plain_mb": self.naive.peak_mb}
        yield Figure("merge.speedup", (self.naive.seconds / self.merge.seconds,), 15, at_least=True, parts=took)
        peaks = {"of the child": self.merge.child_peak_mb}
        yield Figure("merge.peak_rss_mb", (max(self.merge.peak_mb, self.merge.child_peak_mb),), 160, parts=peaks)


def figures() -> Iterator[Figure]:
    """Figures of the merge."""
    return measure().figures()


def measure(jobs: int = JOBS) -> Result:
    """Make the input, and run both ways on it."""
    with tempfile.TemporaryDirectory(prefix="bench-merge-") as scratch:
        folder = Path(scratch)
        _apart("make_input", folder, jobs)  # apart, since a child's peak begins with its parent's
        return Result(_apart("ours", folder, jobs), _apart("naive", folder, jobs))


def _apart(way: str, folder: Path, jobs: int) -> Measure:
    command = [sys.executable, "-m", "tests.bench.merge", way, str(folder), str(jobs)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measure(**json.loads(answer.stdout.splitlines()[-1]))


def make_input(folder: Path, jobs: int) -> None:
    """A plan log, a manifest, and `jobs` logs of one sample each."""
    from fleet.evals.documents import JobResult
    from tests.fleet.evals import merge_kit, merge_tasks

    plan_log = merge_kit.plan(_task(jobs), folder)
    plan_log.rename(folder / "plan.eval")
    template = merge_kit.run(_task(1), folder)
    with zipfile.ZipFile(template) as archive:
        sample, summary = (json.loads(archive.read(name)) for name in ("samples/s0_epoch_1.json", "summaries.json"))
        fixed = {name: archive.read(name) for name in ("_journal/start.json", "header.json")}
    manifest = merge_kit.manifest(folder / "plan.eval", [[(f"s{number}", 1)] for number in range(jobs)])
    (folder / "manifest.json").write_text(manifest.write())
    (folder / "jobs").mkdir()
    words = merge_tasks.words(1)[0].metadata or {}
    chance = random.Random(7)  # noqa: S311 (no secret)
    vocabulary = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(4000)]
    for number in range(jobs):
        text = " ".join(chance.choices(vocabulary, k=SAMPLE_BYTES // 7))
        name, job = f"s{number}", merge_kit.job_name(number)
        own = {**sample, "id": name, "store": {"text": text[: SAMPLE_BYTES - len(json.dumps(sample))]}}
        record = {"id": name, "epoch": 1, "scores": own["scores"], "metadata": words}
        stamp = "2025-01-01T00:00:00+00:00"
        result = {
            "eval_id": manifest.eval_id,
            "job": job,
            "samples": [record],
            "started_at": stamp,
            "completed_at": stamp,
        }
        usage = {"model_usage": {"parrot/one": {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}}}
        with zipfile.ZipFile(folder / "jobs" / f"{job}.eval", "w", 93) as archive:
            for member, content in fixed.items():
                archive.writestr(member, content)
            archive.writestr(f"samples/{name}_epoch_1.json", json.dumps(own))
            archive.writestr("summaries.json", json.dumps([{**summary[0], "id": name}]))
            archive.writestr(JobResult.MEMBER, JobResult.model_validate(result | usage).write(), zipfile.ZIP_DEFLATED)


def _task(count: int) -> Any:
    from inspect_ai import Task
    from inspect_ai.scorer import match

    from tests.fleet.evals import merge_tasks

    return Task(name="bench", dataset=merge_tasks.words(count), scorer=match())


def ours(folder: Path, jobs: int) -> None:
    """The merge, its metrics computed by a process of their own."""
    from bootstrap.environment import JobEnvironment
    from bootstrap.recompute import Recompute
    from fleet.evals.documents import EnvironmentSpec, EvalManifest
    from fleet.evals.merge import merge

    manifest = EvalManifest.read((folder / "manifest.json").read_text())
    environment = JobEnvironment(
        spec=EnvironmentSpec(python="3.11", lock=""), python=Path(sys.executable), source=folder
    )
    logs = sorted((folder / "jobs").iterdir())[:jobs]
    report = merge(manifest, folder / "plan.eval", logs, folder / "ours.eval", recompute=Recompute(environment))
    if report.samples != jobs:
        raise SystemExit(f"merged {report.samples} of {jobs}: {report.unusable[:1]}")


def naive(folder: Path, jobs: int) -> None:
    """Every log read whole, all samples in memory, one log written."""
    from inspect_ai.log import read_eval_log, recompute_metrics, write_eval_log

    whole = read_eval_log(str(folder / "plan.eval"), header_only=True)
    whole.samples = []
    for log in sorted((folder / "jobs").iterdir())[:jobs]:
        whole.samples += read_eval_log(str(log)).samples or []
    recompute_metrics(whole)
    whole.status = "success"
    write_eval_log(whole, str(folder / "naive.eval"))


def main(arguments: list[str]) -> None:
    """Measure; or, with a way, a folder and a number, be what is measured."""
    if len(arguments) == 3:
        way, folder, jobs = arguments
        began = time.monotonic()
        {"make_input": make_input, "ours": ours, "naive": naive}[way](Path(folder), int(jobs))
        own, children = (
            resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        answer = {"seconds": time.monotonic() - began, "peak_mb": own, "child_peak_mb": children}
        print(json.dumps(answer))  # noqa: T201
        return
    for figure in measure(int(arguments[0]) if arguments else JOBS).figures():
        print(figure.line())  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
