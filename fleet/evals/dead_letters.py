"""What SQS put aside: messages that were taken often and neither finished, failed nor given back.

A backstop behind every other rule: a job whose message ends there would be open for ever, with nobody to run it. The controller
looks there now and then, and makes each such job a failure like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from fleet.aws.queues import Message
from fleet.evals.attempts import DEAD_LETTER
from fleet.evals.documents import EvalId, JobFailure, JobMessage
from fleet.evals.progress import EvalTally
from fleet.evals.site import Site
from fleet.wire import DocumentRefused

MOST_TAKEN = 20
"""How often SQS hands a message out. More than `attempts.POISON_DEATHS`, so that a worker which gets as far as that rule judges
the job first."""

BATCHES = 20
"""Of messages taken in at a look, at most."""


def take_in(site: Site, queue: str, evals: Mapping[EvalId, EvalTally]) -> Iterator[str]:
    """Make a final failure of each job on the dead-letter queue that has neither result nor failure, and delete its message.

    Answers a line for each message, for the run's log. `evals`: as they stand now. AwsRefused: what was not taken in comes again.
    """
    for _ in range(BATCHES):
        messages = site.queues.receive(queue, wait=0)
        if not messages:
            return
        for message in messages:
            yield _settle(site, message, evals)
        site.queues.done_all(queue, [message.receipt for message in messages])


def _settle(site: Site, message: Message, evals: Mapping[EvalId, EvalTally]) -> str:
    put_aside = "SQS put aside the message of"
    try:
        job = JobMessage.read(message.body)
    except DocumentRefused as refusal:
        return f"SQS put aside a message that means nothing here: {refusal}"
    tally = evals.get(job.eval_id)
    if tally is None or job.job not in tally.jobs:
        return f"{put_aside} job {job.job} of {job.eval_id}, which this run doesn't have"
    if job.job in tally.failed or site.objects.exists(site.layout.result(job.eval_id, job.job)):
        return f"{put_aside} job {job.job}, which has ended by itself"
    record = JobFailure(
        eval_id=job.eval_id,
        job=job.job,
        attempt=job.failures + 1,
        final=True,
        kind=DEAD_LETTER,
        why=f"its message was taken {MOST_TAKEN} times, and the job neither finished, failed nor was given back",
        instance="",
        at=datetime.now(UTC).isoformat(),
    )
    site.objects.put(site.layout.failure(job.eval_id, job.job, record.attempt), record.write().encode())
    return f"{put_aside} job {job.job}, which counts as failed: {record.why}"
