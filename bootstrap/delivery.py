"""One job's way through this worker, from its message to the message's end.

The order is what makes a crash at any point harmless: the result is written here, then put (the first one wins), then
told, and only then is the message deleted. Between two steps the job is at worst run twice and counted once. What is no
fault of the job (a lapsed lease, a cancelled worker, a store that doesn't answer) gives it back and is no attempt; only of
workers that die or fall silent with it in flight are there too many at some point.

So with a host that is unfit when a job fails, or whose kernel killed the runner for memory: whose fault it is, the job's or its
neighbours', can't be told there. It goes back without a failure, and elsewhere it may fit; it is a death all the same, so that a
job which no host can hold ends.
"""

from __future__ import annotations

import errno
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import anyio

from bootstrap.clockwork import Clockwork, in_time
from bootstrap.lease import Lease, LeasesMessages
from bootstrap.manifests import JobUnknown, Manifests, ReadsObjects
from bootstrap.partial import PartialLogs
from bootstrap.private_files import open_to_read, remove_folder
from bootstrap.reports import Reports, tally
from bootstrap.runners import RESULT_UNUSABLE, JobAnswer, JobCrashed, RunnerDied
from bootstrap.secrets import Secrets
from fleet.aws.failures import AwsRefused, CredentialsBad, Denied
from fleet.aws.queues import Message
from fleet.evals.attempts import POISON, POISON_DEATHS, RATE_LIMITED, AfterFailure, after_failure
from fleet.evals.documents import EvalId, EvalManifest, Job, JobFailure, JobId, JobMessage
from fleet.evals.layout import Layout
from fleet.wire import DocumentRefused

GIVE_BACK_DELAY = 10
"""Seconds before a job is seen again that was given back because AWS didn't answer."""
PASS_DELAY = 5
"""Seconds before a message is seen again that is left to the worker which runs its job, or comes while that run ends."""

EXHAUSTED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.ETIMEDOUT})
"""Errors of a host that has no more disk or memory, or whose disk hangs, by a number of errno."""
FOLDER_SECONDS = 60.0
"""How long the disk may take to make a job's folder."""

PUT_SECONDS = 1800.0
"""How long a finished job's result is tried to be put while its lease is kept; then the job is given back, and run again."""
LONGEST_PUT_DELAY = 30.0
"""Seconds between two tries: one at first, and doubled each time up to this."""
ONE_PUT_SECONDS = 600.0
"""For one try, which is not cut short: a log of gigabytes has the time, and a disk that hangs keeps no worker."""
LAST_PUT_SECONDS = 10.0
"""For the one try that a worker has left which is told to stop; its other jobs are given back meanwhile."""
SETTLE_SECONDS = 60.0
"""For recording a failure and what follows from it, which is done whole or not at all."""
REMOVE_SECONDS = 60.0
"""How long the removal of a job's folder is waited for; it goes on after that."""

Outcome = Literal["done", "known", "again", "failed", "given back", "held already", "dropped"]
"""done: its result is put (or another's was first). known: it had one already. again: it failed and is back on the queue.
failed: for good. given back: no fault of the job. held already: its job is at work, here or elsewhere. dropped: the message means
nothing here."""


class StoresObjects(ReadsObjects, Protocol):
    """What is needed of `fleet.aws.objects.Objects`."""

    def put(self, key: str, data: bytes | BinaryIO) -> None:
        """Put in place of what lies there."""
        ...

    def put_new(self, key: str, data: BinaryIO) -> bool:
        """Put if nothing lies there; False: another was first."""
        ...

    def exists(self, key: str) -> bool:
        """Whether something lies there."""
        ...


RunJob = Callable[[EvalManifest, Job, Path], Awaitable[JobAnswer]]
"""Runs a job in a warm runner. JobCrashed, RunnerDied: it failed, by itself or with its runner."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a message, and what it says about the slots."""

    outcome: Outcome
    rate_limited: int = 0
    """How often the provider said "too many" while the job ran."""
    again_in: int = 0
    """Seconds until the job is seen again, if it is to be tried again."""
    unfit: str = ""
    """Why this host is unfit, where the job ended for that."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What every delivery of this worker shares."""

    instance: str
    queue: str
    """URL of the work queue."""
    lease_seconds: int
    folder: Path
    layout: Layout
    objects: StoresObjects
    queues: LeasesMessages
    manifests: Manifests
    reports: Reports
    secrets: Secrets
    clockwork: Clockwork
    run_job: RunJob
    say: Callable[[str], None]
    unfit: Callable[[], Awaitable[str]]
    """Why this host is unfit at this moment; empty: it is fit."""
    oom_kills: Callable[[], int]
    """How many processes the kernel has killed here for memory."""
    worker: str = ""
    """Name of the worker's flow run, for people."""
    wall: Callable[[], float] = time.time
    """Seconds since the epoch."""
    held: dict[str, JobMessage] = field(default_factory=dict)
    """Jobs in flight by receipt: what a worker that is stopped gives back."""
    stored: set[tuple[EvalId, JobId]] = field(default_factory=set)
    """Jobs that are done, also where a delivery was cancelled as it put the result: whoever counts takes them out."""
    _running: dict[tuple[EvalId, JobId], Lease] = field(default_factory=dict)

    async def deliver(self, message: Message) -> Delivered:
        """Take a message to its end. Cancelled: the job is given back at once, whatever it was doing.

        Denied, CredentialsBad: this worker can do no job at all. Any other failure of AWS gives the job back.
        """
        lease = Lease(
            self.queues,
            self.queue,
            message,
            seconds=self.lease_seconds,
            clockwork=self.clockwork,
            say=self.say,
            holder=self.instance,
            wall=self.wall,
        )
        try:
            return await self._kept(lease)
        except AwsRefused as refusal:
            if isinstance(refusal, (Denied, CredentialsBad)):
                await lease.give_back()
                raise
            self.say(f"a job is given back: {refusal}")
            await lease.give_back(GIVE_BACK_DELAY)
            return Delivered("given back", again_in=GIVE_BACK_DELAY)
        except anyio.get_cancelled_exc_class():  # others must not wait for the lease to lapse
            await lease.give_back()
            raise
        except BaseException:  # a bug of ours, which may be met again with this job: it counts
            await lease.release()
            raise
        finally:
            self.held.pop(message.receipt, None)

    async def _kept(self, lease: Lease) -> Delivered:
        try:
            lease.job = message = JobMessage.read(lease.message.body)
            if await self._runs_here(lease, message):
                return Delivered("held already")
            self.held[lease.message.receipt] = message
            manifest, job = await self.manifests.job(message)
        except (DocumentRefused, JobUnknown) as error:
            # No worker of this release can do it, so nobody is served by its coming back.
            self.say(f"a message is dropped: {error}")
            await self.reports.send("job_failed", kind="message", why=str(error), final=True)
            await lease.done()
            return Delivered("dropped")
        if await self.clockwork.in_thread(self.objects.exists, self.layout.result(message.eval_id, message.job)):
            await lease.done()
            return Delivered("known")
        if message.holder not in ("", self.instance) and message.leave_until > self.wall():
            await lease.give_back(PASS_DELAY, holder=message.holder, leave_until=message.leave_until)
            return Delivered("held already", again_in=PASS_DELAY)
        if lease.deaths >= POISON_DEATHS:
            why = f"{lease.deaths} workers died, fell silent or ran out of memory or disk while it was in flight"
            return await self._failed(lease, message, POISON, why, AfterFailure(final=True, delay=0))
        if await self._runs_here(lease, message):  # of two that came together, the other was quicker
            return Delivered("held already")
        self._running[message.eval_id, message.job] = lease
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease.keep)
                try:
                    return await self._attempt(lease, message, manifest, job)
                except AwsRefused as failure:
                    refusal = failure  # raised below: the group would wrap it
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            del self._running[message.eval_id, message.job]
        raise refusal

    async def _runs_here(self, lease: Lease, message: JobMessage) -> bool:
        """Whether this worker runs the message's job; then the job is held by this message from now on.

        Where that run is about to end, the message comes again after it.
        """
        running = self._running.get((message.eval_id, message.job))
        if running and not running.take_over(lease.message, message):
            await lease.give_back(PASS_DELAY)
        return running is not None

    async def _attempt(self, lease: Lease, message: JobMessage, manifest: EvalManifest, job: Job) -> Delivered:
        try:
            with in_time(FOLDER_SECONDS, "making a folder", shield=True):  # else one was left behind
                folder = await self.clockwork.in_thread(self._new_folder, message.job)
            try:
                return await self._attempt_in(folder, lease, message, manifest, job)
            finally:
                with anyio.move_on_after(REMOVE_SECONDS, shield=True):
                    await self.clockwork.in_thread(remove_folder, folder)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            # Of our own writes, which come before the job's: it has no part in this.
            self.say(f"job {message.job} is given back: {error}")
            await lease.give_back()
            return Delivered("given back", unfit=str(error))

    def _new_folder(self, job: JobId) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Not named by the job alone: after a lost lease this very worker may get it a second time.
        return Path(tempfile.mkdtemp(prefix=f"{job}-", dir=self.folder))

    async def _attempt_in(
        self, folder: Path, lease: Lease, message: JobMessage, manifest: EvalManifest, job: Job
    ) -> Delivered:
        await self.reports.send("job_started", message, failures=message.failures)
        kills = self.oom_kills()
        try:
            answer = await self.run_job(manifest, job, folder)
        except JobCrashed as crash:
            unfit = "" if crash.kind in RATE_LIMITED else await self.unfit()
            return await self._failed(lease, message, crash.kind, crash.why, said=crash.said, unfit=unfit)
        except RunnerDied as death:
            starved = death.killed and self.oom_kills() > kills
            unfit = "the kernel killed a runner for memory" if starved else await self.unfit()
            kind = type(death).__name__
            delivered = await self._failed(lease, message, kind, str(death), said=death.said, unfit=unfit)
            await self._partial.keep(message, folder)
            return delivered
        except anyio.get_cancelled_exc_class():
            await lease.give_back()  # before anything else: another worker may wait for it
            await self._partial.keep(message, folder, ending=True)
            raise
        try:
            return await self._put_in_time(lease, message, answer)
        except OSError as error:
            unfit = await self.unfit()
            return await self._failed(lease, message, RESULT_UNUSABLE, f"its log can't be read: {error}", unfit=unfit)
        except anyio.get_cancelled_exc_class():  # with a finished job in hand
            with anyio.move_on_after(LAST_PUT_SECONDS, shield=True), suppress(AwsRefused, OSError):
                await self._put(lease, message, answer)
            raise

    @property
    def _partial(self) -> PartialLogs:
        return PartialLogs(self.objects, self.layout, self.instance, self.clockwork, self.say)

    async def _put_in_time(self, lease: Lease, message: JobMessage, answer: JobAnswer) -> Delivered:
        """Put a finished job's result, again and again where S3 doesn't take it: to run the job again would cost more."""
        delay, until = 1.0, self.clockwork.now() + PUT_SECONDS
        while True:
            try:
                with in_time(ONE_PUT_SECONDS, "putting it", shield=True):  # what S3 has is told, and not run again
                    return await self._put(lease, message, answer)
            except AwsRefused as refusal:
                if isinstance(refusal, (Denied, CredentialsBad)) or self.clockwork.now() + delay > until:
                    raise
                self.say(f"the result of job {message.job} is put again in {delay:g} s: {refusal}")
            await self.clockwork.sleep(delay)
            delay = min(2 * delay, LONGEST_PUT_DELAY)

    async def _put(self, lease: Lease, message: JobMessage, answer: JobAnswer) -> Delivered:
        if not await self.clockwork.in_thread(self._put_log, message, answer.log):
            self.say(f"job {message.job} has a result already; ours is dropped")
        await self.reports.send("job_done", message, seconds=round(answer.seconds, 3), **tally(answer.result))
        self.stored.add((message.eval_id, message.job))
        await lease.done()
        return Delivered("done", rate_limited=answer.rate_limited)

    def _put_log(self, message: JobMessage, log: Path) -> bool:
        with open_to_read(log) as file:
            return self.objects.put_new(self.layout.result(message.eval_id, message.job), file)

    async def _failed(
        self,
        lease: Lease,
        message: JobMessage,
        kind: str,
        why: str,
        verdict: AfterFailure | None = None,
        *,
        said: str = "",
        unfit: str = "",
    ) -> Delivered:
        """Record a failure, and what it means: by its kind, unless there is a `verdict` already.

        Where the lease was lost, or this host is `unfit`, it is recorded and means nothing.
        """
        failures = message.failures + 1
        record = JobFailure(
            eval_id=message.eval_id,
            job=message.job,
            attempt=failures,
            final=False,
            kind=kind,
            why=self.secrets.hide(why),
            instance=self.instance,
            at=datetime.now(UTC).isoformat(),
            worker=self.worker,
            log=self.secrets.hide(said),
        )
        limited = int(kind in RATE_LIMITED)
        if unfit or lease.lost:  # of a lost one, another worker counts its own failures by now
            await lease.give_back(died=True)  # first: it counts also where there can be no record
            await self._put_uncounted(record, f"this host is unfit: {unfit}" if unfit else "its lease was lost before")
            return Delivered("given back", rate_limited=limited, unfit=unfit)
        verdict = verdict or after_failure(kind, failures)
        record = record.model_copy(update={"final": verdict.final})
        with anyio.move_on_after(SETTLE_SECONDS, shield=True) as settling:
            await self._settle(lease, message, record, verdict)
        if settling.cancelled_caught and lease.closing:
            lease.leave()  # it may be on the queue again
        if settling.cancelled_caught:
            self.say(f"job {message.job} failed, and AWS took longer than {SETTLE_SECONDS:g} s to hear of it")
            await lease.give_back()
            return Delivered("given back", rate_limited=limited)
        return Delivered("failed" if verdict.final else "again", rate_limited=limited, again_in=verdict.delay)

    async def _settle(self, lease: Lease, message: JobMessage, record: JobFailure, verdict: AfterFailure) -> None:
        key = self.layout.failure(message.eval_id, message.job, record.attempt)
        await self.clockwork.in_thread(self.objects.put, key, record.write().encode())
        if not verdict.final:
            lease.closing = True  # what is sent now may come before this one is settled
            again = JobMessage(eval_id=message.eval_id, job=message.job, failures=record.attempt, deaths=lease.deaths)
            await self.clockwork.in_thread(self.queues.send, self.queue, [again.write()], verdict.delay)
        what = "for good" if verdict.final else f"and is tried again in {verdict.delay} s"
        self.say(f"job {message.job} failed {what} (failure {record.attempt}; {record.kind}: {record.why})")
        await self.reports.send(
            "job_failed",
            message,
            attempt=record.attempt,
            final=verdict.final,
            kind=record.kind,
            why=record.why[:500],
        )
        await lease.done()

    async def _put_uncounted(self, record: JobFailure, because: str) -> None:
        """Put the record of a failure that doesn't count, beside those that do."""
        record = record.model_copy(update={"why": f"{record.why} (not counted: {because})"})
        self.say(f"job {record.job} failed ({record.kind}: {record.why})")
        at = datetime.fromisoformat(record.at)
        key = self.layout.failure(record.eval_id, record.job, f"uncounted-{at:%Y%m%dT%H%M%SZ}-{self.instance}")
        try:
            await self.clockwork.in_thread(self.objects.put, key, record.write().encode())
        except AwsRefused as refusal:
            self.say(f"that failure isn't recorded: {refusal}")
