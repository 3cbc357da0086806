"""What follows from earlier runs: the order of jobs, and how many run at a time at first. Pure: facts in, a decision out."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence

from fleet.evals.documents import EvalId, JobId
from fleet.evals.forecast import FIRST_SLOTS
from fleet.evals.progress import WorkerTally

Expected = Mapping[EvalId, Mapping[JobId, float]]
"""Seconds that jobs are expected to take; those of which nothing is known are missing."""


def sending_order(open_jobs: Mapping[EvalId, Sequence[JobId]], expected: Expected) -> list[tuple[EvalId, JobId]]:
    """In which order jobs are handed out: the longest expected first, since an instance stays for the last one it holds.

    Jobs of which nothing is known come by turns of their evals, so that none waits for another to end, and spread evenly over the
    whole: they may be as long as any.
    """
    known = [(eval_id, job) for eval_id, jobs in open_jobs.items() for job in jobs if job in expected.get(eval_id, {})]
    known.sort(key=lambda one: -expected[one[0]][one[1]])
    lanes = [
        [(eval_id, job) for job in jobs if job not in expected.get(eval_id, {})] for eval_id, jobs in open_jobs.items()
    ]
    unknown = [one for turn in itertools.zip_longest(*lanes) for one in turn if one is not None]
    placed = [(position / len(many), one) for many in (unknown, known) for position, one in enumerate(many)]
    return [one for _, one in sorted(placed, key=lambda it: it[0])]


ROUNDS = 3
"""Of its slots' jobs that an instance must have done before a refused call says where it settled: it begins with few of either."""


def settled_slots(workers: Iterable[WorkerTally]) -> int:
    """At how many jobs at a time the instances of a run had settled, for the next one to begin with; 0: it doesn't say.

    Where a provider has set limits, the middle of where they left the instances that met them. Else the most that one of them came
    to, if that is more than any begins with: a short run is no reason to begin with less.
    """
    at_work = [worker for worker in workers if worker.jobs and worker.settled]
    limited = [one.settled for one in at_work if one.rate_limited and one.jobs >= ROUNDS * one.settled]
    if limited:
        return statistics.median_low(limited)
    most = max((worker.settled for worker in at_work), default=0)
    return most if most > FIRST_SLOTS else 0
