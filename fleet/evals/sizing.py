"""What follows from expected durations: the order of jobs. Pure: facts in, a decision out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from fleet.evals.documents import EvalId, JobId

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
