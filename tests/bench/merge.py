"""The merge beside the naive way: read each log with Inspect, write one. Same input, one run, each in its own process.

`python -m tests.bench.merge [JOBS]`. The input is made here: one-sample logs of real size, with text that compresses as
transcripts do. How memory grows is measured on small ones: samples are copied a piece at a time, whatever their size.
"""

from __future__ import annotations

import json
import os
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

from bootstrap.environment import JobEnvironment
from bootstrap.recompute import Recompute, Warm
from fleet.evals.documents import EnvironmentSpec, EvalManifest
from fleet.evals.merge import merge
from tests.bench.figures import Figure

JOBS = 2000
MANY = 5
"""Times as many results, for the growth of memory."""
SMALL_BYTES = 2_000
STILL = 8
"""Tenths of a second without work, after which a process has done what it had to do."""
SAMPLE_BYTES = 205_000
"""Of a sample's JSON: a few dozen messages with their events."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What one way took."""

    seconds: float
    peak_mb: float
    """Of the measured process, without children."""
    child_peak_mb: float

    @property
    def most_mb(self) -> float:
        """Of both."""
        return max(self.peak_mb, self.child_peak_mb)

    def peaks(self) -> dict[str, float]:
        """Of each, as parts of a figure."""
        return {"merging": self.peak_mb, "computing": self.child_peak_mb}


@dataclass(frozen=True, slots=True)
class Result:
    """The comparison, for `python -m tests.bench`."""

    merge: Measure
    """As a run has it, whose process for the metrics has imported Inspect before."""
    cold: Measure
    """As who collects by hand has it."""
    naive: Measure
    few: Measure
    many: Measure
    """Of small results: as many, and `MANY` times as many."""

    def figures(self) -> Iterator[Figure]:
        """As `python -m tests.bench` has them."""
        took = {
            "ours_s": self.merge.seconds,
            "cold_s": self.cold.seconds,
            "plain_s": self.naive.seconds,
            "plain_mb": self.naive.peak_mb,
        }
        yield Figure("merge.speedup", (self.naive.seconds / self.merge.seconds,), 15, at_least=True, parts=took)
        yield Figure("merge.peak_rss_mb", (self.merge.most_mb,), 160, parts=self.merge.peaks())
        growth = self.many.most_mb / self.few.most_mb
        yield Figure("merge.rss_growth", (growth,), 1.2, parts=self.many.peaks())


def figures() -> Iterator[Figure]:
    """Figures of the merge."""
    return measure().figures()


def measure(jobs: int = JOBS) -> Result:
    """Make the input, and run both ways on it."""
    with tempfile.TemporaryDirectory(prefix="bench-merge-") as scratch:
        folder = Path(scratch)
        _apart("make_input", folder / "real", jobs)  # apart, since a child's peak begins with its parent's
        ways = [_apart(way, folder / "real", jobs) for way in ("ours", "cold", "naive")]
        _apart("make_small", folder / "small", MANY * jobs)
        return Result(*ways, *(_apart("ours", folder / "small", count) for count in (jobs, MANY * jobs)))


def _apart(way: str, folder: Path, jobs: int) -> Measure:
    command = [sys.executable, "-m", "tests.bench.merge", way, str(folder), str(jobs)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measure(**json.loads(answer.stdout.splitlines()[-1]))


def make_small(folder: Path, jobs: int) -> None:
    """As `make_input`, of small samples."""
    make_input(folder, jobs, SMALL_BYTES)


def make_input(folder: Path, jobs: int, sample_bytes: int = SAMPLE_BYTES) -> None:
    """A plan log, a manifest, and `jobs` logs of one sample each."""
    from fleet.evals.documents import JobResult
    from tests.fleet.evals import merge_kit, merge_tasks

    folder.mkdir(parents=True)
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
        text = " ".join(chance.choices(vocabulary, k=sample_bytes // 7))
        name, job = f"s{number}", merge_kit.job_name(number)
        own = {**sample, "id": name, "store": {"text": text[: max(0, sample_bytes - len(json.dumps(sample)))]}}
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


def ours(folder: Path, jobs: int) -> float:
    """The merge as a run does it, its metrics computed by a process that waited for it; when it began."""
    with Warm(_environment(folder), dict(os.environ), merges=1) as warm:
        warm.start()
        _wait_for_import(warm.waiting or 0)
        return _merged(folder, jobs, warm)


def cold(folder: Path, jobs: int) -> float:
    """The merge as who collects by hand has it; when it began."""
    return _merged(folder, jobs, None)


def _environment(folder: Path) -> JobEnvironment:
    spec = EnvironmentSpec(python="3.11", lock="")
    return JobEnvironment(spec=spec, python=Path(sys.executable), source=folder)


def _merged(folder: Path, jobs: int, warm: Warm | None) -> float:
    began = time.monotonic()
    manifest = EvalManifest.read((folder / "manifest.json").read_text())
    logs = sorted((folder / "jobs").iterdir())[:jobs]
    manifest = manifest.model_copy(update={"jobs": manifest.jobs[:jobs], "sample_ids": manifest.sample_ids[:jobs]})
    recompute = Recompute(_environment(folder), warm=warm)
    report = merge(manifest, folder / "plan.eval", logs, folder / "ours.eval", recompute=recompute)
    if report.samples != jobs or report.results is None or report.absent:
        raise SystemExit(f"merged {report.samples} of {jobs}: {report.unusable[:1]} {report.error}")
    return began


def _wait_for_import(pid: int) -> None:
    """Until a process needs no processor any more: it has imported, and waits for its first line."""
    used, still = -1.0, 0
    while still < STILL:
        time.sleep(0.1)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        now = float(fields[11]) + float(fields[12])
        still = still + 1 if now == used and fields[0] == "S" and now > 0 else 0
        used = now


def naive(folder: Path, jobs: int) -> float:
    """Every log read whole, all samples in memory, one log written; when it began."""
    began = time.monotonic()
    from inspect_ai.log import read_eval_log, recompute_metrics, write_eval_log

    whole = read_eval_log(str(folder / "plan.eval"), header_only=True)
    whole.samples = []
    for log in sorted((folder / "jobs").iterdir())[:jobs]:
        whole.samples += read_eval_log(str(log)).samples or []
    recompute_metrics(whole)
    whole.status = "success"
    write_eval_log(whole, str(folder / "naive.eval"))
    return began


def main(arguments: list[str]) -> None:
    """Measure; or, with a way, a folder and a number, be what is measured."""
    if len(arguments) == 3:
        way, folder, jobs = arguments
        ways = {"make_input": make_input, "make_small": make_small, "ours": ours, "cold": cold, "naive": naive}
        began = ways[way](Path(folder), int(jobs)) or time.monotonic()
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
