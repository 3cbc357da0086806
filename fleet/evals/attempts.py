"""What a failed job means: tried again or failed for good, by the kind of its failure and nothing else.

A kind is the name of an exception class: the runner's own, or the first of the exception's bases that stands in a table
here. Never retried is `FINAL`; requeued later and later is `RATE_LIMITED`; any other is retried `MOST_FAILURES` times in all.

A sample that raises is no failed job: its error is kept in the log, by Inspect's own rules. Nor is an attempt that ended for a
reason of its worker's (interruption, death, lapse of the lease, a bad host): those are counted apart, as deaths, where nobody
said goodbye or the job failed on a host without memory or disk, since a job that kills its workers must end too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_FAILURES = 3
"""Failures that count after which a job is given up, unless its kind says otherwise."""

FINAL = frozenset(
    {
        # Ours: the job environment or the task gives other samples than were planned.
        "SampleAbsent",
        "SampleChanged",
        # What a runner refuses, by the names of `bootstrap.refusals`: it builds the task as the planner did.
        "ConfigKeyUnknown",
        "ConfigValueRefused",
        "FileMissing",
        "ModelUnknown",
        "PrerequisiteRefused",
        "SampleUnknown",
        "SolverUnknown",
        "TaskArgsRefused",
        "TaskRefused",
        "TaskUnknown",
        # The user's code or settings: they will be the same the next time.
        "PrerequisiteError",
        "ImportError",
        "SyntaxError",
        "NotImplementedError",
    }
)
"""Kinds that another attempt can't mend."""

RATE_LIMITED = frozenset(
    {"OverloadedError", "RateLimitError", "ResourceExhausted", "ThrottlingException", "TooManyRequests"}
)
"""Kinds by which a model's provider says "too many" (the first is Anthropic's 529): not given up, but tried later and later."""

POISON = "PoisonJob"
"""Kind of a job that is given up because too many workers died, fell silent or ran out of memory or disk with it in flight."""
POISON_DEATHS = 5
"""How many are too many."""

DEAD_LETTER = "DeadLetter"
"""Kind of a job whose message SQS put aside: taken often, and never finished, failed or given back."""

RATE_LIMIT_FAILURES = 10
"""Failures after which even a rate-limited job is given up."""

FIRST_DELAY = 5
LONGEST_DELAY = 300
"""Seconds before a failed job is seen again: doubled with each failure, up to the longest."""


@dataclass(frozen=True, slots=True)
class AfterFailure:
    """What becomes of a failed job."""

    final: bool
    delay: int
    """Seconds before it is tried again; 0 when it is not."""


def after_failure(kind: str, failures: int) -> AfterFailure:
    """What the failure number `failures` (1 the first) of a job means, when it is of this kind."""
    most = 1 if kind in FINAL else RATE_LIMIT_FAILURES if kind in RATE_LIMITED else MOST_FAILURES
    if failures >= most:
        return AfterFailure(final=True, delay=0)
    first = FIRST_DELAY * 6 if kind in RATE_LIMITED else FIRST_DELAY
    return AfterFailure(final=False, delay=min(first * 2 ** (failures - 1), LONGEST_DELAY))


def kind_of(bases: Sequence[str]) -> str:
    """The kind of an exception, from the names of its class and bases, nearest first.

    The nearest one with a meaning of its own; else the class's own name: it is tried again, and named as it is.
    """
    return next((name for name in bases if name in FINAL or name in RATE_LIMITED), bases[0])
