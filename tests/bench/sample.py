"""Two thousand short samples on one instance, beside plain `inspect eval` of the same with the same concurrency."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.whole_runs import Asked, check_equal, on_an_instance, plainly

SLOTS, IN_A_JOB = 8, 16
"""Jobs at a time, which is what an instance of two processors takes at most, and samples in each, which is what `auto` chooses."""
ASKED = Asked(samples=400, epochs=5, at_once=SLOTS * IN_A_JOB, latency=0.5, jitter=1.0)


def figures() -> Iterator[Figure]:
    """From the first job taken to the last result stored, over the whole `inspect eval`. Each begins with its imports."""
    with tempfile.TemporaryDirectory(prefix="bench-plain-") as scratch:
        with on_an_instance(ASKED, concurrency_per_worker=SLOTS) as ran:
            plain = plainly(ran.environment, ASKED, Path(scratch))
            check_equal(plain, ran)
        sizes = {len(result.samples) for result in ran.results.values()}
        if max(sizes) != IN_A_JOB:
            raise SystemExit(f"jobs of {sorted(sizes)} samples: not the same concurrency")
        last = ran.stored[-1] + 1  # at the latest
        yield Figure(
            "sample.overhead",
            ((last - ran.takes) / plain.seconds,),
            1.2,
            parts={
                "fleet_s": last - ran.takes,
                "plain_s": plain.seconds,
                "fleet_from_first_sample_s": last - ran.begun,
                "jobs": len(ran.results),
                "runner_s_a_job": sum(result.seconds for result in ran.results.values()) / len(ran.results),
            },
        )
