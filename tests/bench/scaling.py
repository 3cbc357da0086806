"""Does a fleet of four work four times as fast as one instance? The same request on 1, 2 and 4 instances of one local cloud.

Its samples wait for their model, as an eval's do, so that two cores are enough for all of them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet.evals.eval_file import SUMMARIES, EvalFile
from tests.bench.figures import Figure
from tests.bench.whole_runs import RUN_S, results_of
from tests.cloud import ELEMENTS, CloudUnderTest, a_cloud
from tests.parity.compare import compare

SIZES = (1, 2, 4)
SLOTS = 4
"""Jobs at a time on an instance: its first number of slots is that, so that none of the time goes into their growth."""
SAMPLES_PER_JOB = 4
JOBS = 48
"""Three rounds of all slots for the largest fleet."""
LATENCY_S = 6.0
NAME = "bench-scaling"


@dataclass(frozen=True, slots=True)
class Work:
    """The request's work on so many instances; times in seconds since the epoch."""

    begun: tuple[float, ...]
    """When the first sample of each instance began."""
    ended: float
    """When the last sample had ended."""
    log: Path

    @property
    def seconds(self) -> float:
        """From the first sample's start to the last one's end."""
        return self.ended - min(self.begun)

    @property
    def instance_seconds(self) -> float:
        """The same of each instance, from its own first sample."""
        return sum(self.ended - begun for begun in self.begun)


def figures() -> Iterator[Figure]:
    """The figure of scaling."""
    with tempfile.TemporaryDirectory(prefix="bench-scaling-") as scratch, a_cloud(NAME) as cloud:
        works = {size: work(cloud, size, Path(scratch) / str(size)) for size in SIZES}
        for size in SIZES[1:]:
            if found := compare(works[1].log, works[size].log).differences:
                raise SystemExit(f"{size} instances made another log than one: {found[0]}")
    one, most = works[1], works[SIZES[-1]]
    parts = {f"of_{size}_s": works[size].seconds for size in SIZES}
    parts |= {f"speed-up_of_{size}": one.seconds / works[size].seconds for size in SIZES[1:]}
    parts["late_s"] = max(most.begun) - min(most.begun)
    yield Figure("fleet.scaling", (one.instance_seconds / most.instance_seconds,), 0.9, at_least=True, parts=parts)


def work(cloud: CloudUnderTest, size: int, folder: Path) -> Work:
    """Have the request done by so many instances. SystemExit: it wasn't done whole, or not by so many."""
    options = {"max_workers": size, "concurrency_per_worker": SLOTS, "new_fleet": "true"}
    done = cloud.fleet(
        *("run", *ELEMENTS, "--local-cloud", "--json", "--log-dir", str(folder)),
        *("-M", f"latency={LATENCY_S}", "--samples-per-job", str(SAMPLES_PER_JOB)),
        *("--eval-arg", f"limit={JOBS * SAMPLES_PER_JOB}"),
        *(part for name, value in options.items() for part in ("--ec2-arg", f"{name}={value}")),
        seconds=RUN_S,
    )
    if done.code:
        raise SystemExit(f"the run on {size} instances ended with exit code {done.code}:\n{done.err[-2000:]}")
    (one,) = done.report["evals"]
    log = Path(one["log"])
    with EvalFile(log) as whole:
        samples: list[dict[str, Any]] = json.loads(whole.read(SUMMARIES))
    results = [result for result, _ in results_of(cloud, one["eval_id"], folder)]
    instance_of = {(its.id, its.epoch): result.instance for result in results for its in result.samples}
    begun: dict[str, float] = {}
    for sample in samples:
        instance, began = instance_of[sample["id"], sample["epoch"]], _seconds(sample["started_at"])
        begun[instance] = min(began, begun.get(instance, began))
    if len(samples) != JOBS * SAMPLES_PER_JOB or len(begun) != size:
        raise SystemExit(f"{len(samples)} samples were done by {len(begun)} instances")
    return Work(tuple(begun.values()), max(_seconds(sample["completed_at"]) for sample in samples), log)


def _seconds(when: str) -> float:
    return datetime.fromisoformat(when).timestamp()
