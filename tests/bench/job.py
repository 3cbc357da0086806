"""Jobs of one sample, one after the other on one instance, beside a process of plain Inspect for each."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from inspect_ai.log import read_eval_log_sample_summaries

from tests.bench.figures import Figure
from tests.bench.whole_runs import Asked, check_equal, on_an_instance, plainly

JOBS = 100
PROCESSES = 5
"""Each takes seconds, and all of them the same."""


def figures() -> Iterator[Figure]:
    """From the first result stored to the last, for each job between; what its runner and its sample take of that."""
    with tempfile.TemporaryDirectory(prefix="bench-plain-") as scratch:
        folder = Path(scratch)
        asked = Asked(samples=JOBS, at_once=1)
        with on_an_instance(asked, "--samples-per-job", "1", concurrency_per_worker=1) as ran:
            check_equal(plainly(ran.environment, asked, folder / "all"), ran)
            summaries = read_eval_log_sample_summaries(ran.log)
        samples = [summary.total_time or 0.0 for summary in summaries]
        alone = [
            plainly(ran.environment, Asked(samples=1, at_once=1), folder / str(n)).seconds for n in range(PROCESSES)
        ]
    if len(ran.results) != JOBS:
        raise SystemExit(f"{len(ran.results)} jobs")
    each = (ran.stored[-1] - ran.stored[0]) / (JOBS - 1)
    sample, runner = statistics.fmean(samples), statistics.fmean(result.seconds for result in ran.results.values())
    parts = {"each_s": each, "sample_s": sample, "runner_s": runner, "delivery_s": each - runner}
    yield Figure("job.overhead_s", (each - sample,), 0.4, parts=parts)
    parts = {"process_s": statistics.median(alone), "each_s": each}
    yield Figure("job.speedup", tuple(one / each for one in alone), 15, at_least=True, parts=parts)
