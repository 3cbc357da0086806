"""Jobs' messages on the emulator's SQS: what it counts, hides and puts aside, and what is left of a job in each case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from bootstrap.clockwork import real_clockwork
from bootstrap.lease import Lease
from fleet.aws.queues import Message, Queues
from fleet.aws.session import Aws
from fleet.evals.attempts import DEAD_LETTER, POISON_DEATHS
from fleet.evals.dead_letters import MOST_TAKEN, take_in
from fleet.evals.documents import JobFailure, JobMessage
from fleet.evals.preparation import FailureRecords, RunQueues, create_queues, failed_jobs
from fleet.evals.progress import EvalTally
from fleet.evals.site import Site
from fleet.local import preset
from tests.fleet.local.conftest import Host, host, unique

__all__ = ["host", "unique"]

JOB = JobMessage(eval_id="e", job="000000-00000000", failures=1)


@pytest.fixture
def aws(host: Host, monkeypatch: pytest.MonkeyPatch) -> Aws:
    monkeypatch.setenv("AWS_ENDPOINT_URL", host.aws)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    return Aws(preset.REGION)


@pytest.fixture
def queues(aws: Aws) -> Queues:
    return Queues(aws)


@pytest.fixture
def work(queues: Queues, unique: str) -> str:
    url = queues.create(f"inspect-fleet-{unique}-work", tags={}, lease_seconds=60)
    queues.send(url, [JOB.write()])
    return url


def taken(queues: Queues, url: str) -> Message:
    (message,) = queues.receive(url, wait=5)
    return message


def with_lease(queues: Queues, url: str, message: Message, act: Callable[[Lease], Awaitable[Any]]) -> None:
    async def main() -> None:
        lease = Lease(queues, url, message, seconds=60, clockwork=real_clockwork(), say=print, holder="i-1")
        lease.job = JobMessage.read(message.body)
        await act(lease)

    anyio.run(main)


@pytest.mark.fault("given-back")
def test_a_job_that_is_given_back_again_and_again_has_been_in_no_death(queues: Queues, work: str) -> None:
    """SQS counts each time that a message is taken; so it is another message that comes back."""
    for _ in range(4):
        message = taken(queues, work)
        assert (message.receives, JobMessage.read(message.body)) == (1, JOB)
        with_lease(queues, work, message, lambda lease: lease.give_back())
    assert queues.depth(work).total == 1


@pytest.mark.fault("poison-job")
def test_a_worker_s_death_is_what_sqs_has_counted(queues: Queues, work: str) -> None:
    """Its lease lapses: the same message comes again. What was counted goes along when the job is given back later."""
    queues.extend(work, taken(queues, work).receipt, 0)
    again = taken(queues, work)
    assert again.receives == 2
    with_lease(queues, work, again, lambda lease: lease.give_back())
    assert JobMessage.read(taken(queues, work).body).deaths == 1


@pytest.mark.fault("twelve-hours")
def test_a_job_goes_on_under_a_copy_that_its_worker_takes_over(queues: Queues, work: str) -> None:
    async def through(lease: Lease) -> None:
        await lease._replace()
        copy = taken(queues, work)
        said = JobMessage.read(copy.body)
        assert (copy.receives, said.holder, said.deaths) == (1, "i-1", 0)
        lease.take_over(copy, said)
        await lease.done()

    with_lease(queues, work, taken(queues, work), through)
    assert queues.depth(work).total == 0


@pytest.fixture
def site(aws: Aws, unique: str) -> Site:
    return Site(
        region=preset.REGION,
        bucket=preset.BUCKET,
        bucket_region=preset.REGION,
        prefix=f"tests/{unique}",
        parameter_path=f"/tests/{unique}",
    )


def put_aside(site: Site, queues: RunQueues, *jobs: JobMessage | str) -> None:
    """Take messages as often as SQS hands them out, and once more."""
    site.queues.send(queues.work, [job if isinstance(job, str) else job.write() for job in jobs])
    for _ in range(MOST_TAKEN + 1):
        for message in site.queues.receive(queues.work, wait=0):
            site.queues.release(queues.work, message.receipt)


@pytest.mark.fault("dead-letter")
def test_a_job_whose_message_sqs_put_aside_fails_for_good_and_says_so(site: Site, unique: str) -> None:
    """Those that have ended meanwhile, and what means nothing here, are told and dropped. No message is left."""
    queues = create_queues(site, unique, tags={}, lease_seconds=60, made=lambda url: None)
    open_job, done, failed = (JobMessage(eval_id="e", job=f"{n:06}-0", failures=n) for n in range(3))
    tally = EvalTally(
        "e", "t", "m", jobs={job.job: 1 for job in (open_job, done, failed)}, failed={failed.job: "K: no"}
    )
    site.objects.put(site.layout.result("e", done.job), b"a log")
    records = FailureRecords(site, "e")
    put_aside(site, queues, open_job, done, failed, JobMessage(eval_id="another", job="000000-0"), "nonsense")
    assert site.queues.depth(queues.work).total == 0
    assert site.queues.depth(queues.dead).total == 5

    lines = sorted(take_in(site, queues.dead, {"e": tally}))

    assert [line.split("SQS put aside ")[1][:40] for line in lines] == [
        "a message that means nothing here: JobMe",
        "the message of job 000000-0 of another, ",
        "the message of job 000000-0, which count",
        "the message of job 000001-0, which has e",
        "the message of job 000002-0, which has e",
    ]
    assert site.queues.depth(queues.dead).total == 0
    record = JobFailure.read(site.objects.get(site.layout.failure("e", open_job.job, 1)))
    assert (record.kind, record.final, record.instance) == (DEAD_LETTER, True, "")
    reason = f"{DEAD_LETTER}: its message was taken {MOST_TAKEN} times, and the job neither finished, failed nor was given back"
    assert records.final(site) == {open_job.job: reason}, "what the watch goes by"
    assert failed_jobs(site, "e") == {open_job.job: reason}, "what the merged log names as the reason"
    assert MOST_TAKEN > POISON_DEATHS
    for url in (queues.work, queues.events, queues.dead):
        site.queues.delete(url)
