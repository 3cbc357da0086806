from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from bootstrap.clockwork import Clockwork, real_clockwork
from bootstrap.lease import LEAVE_SECONDS, Lease
from fleet.aws.failures import Throttled
from fleet.aws.queues import MOST_LEASE_SECONDS, LeaseLost, Message
from fleet.evals.documents import JobMessage

BUSY = Throttled(service="sqs", operation="ChangeMessageVisibility", code="RequestThrottled", target="q", why="")
LOST = LeaseLost(queue="q", code="ReceiptHandleIsInvalid")


JOB = JobMessage(eval_id="e", job="j", failures=1, deaths=2)


class Queue:
    """Answers renewals from a script; keeps what was sent."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []
        self.sent: list[tuple[JobMessage, int]] = []
        self.deleted: list[str] = []
        self.refuses: Exception | None = None

    def send(self, url: str, bodies: Sequence[str], delay: int = 0) -> None:
        if self.refuses:
            raise self.refuses
        self.sent += [(JobMessage.read(body), delay) for body in bodies]

    def extend(self, url: str, receipt: str, seconds: int) -> None:
        self.asked.append((receipt, seconds))
        if answer := self.answers.pop(0):
            raise answer

    def release(self, url: str, receipt: str, delay: int = 0) -> bool:
        self.asked.append((receipt, delay))
        return True

    def done(self, url: str, receipt: str) -> bool:
        self.deleted.append(receipt)
        return False


def kept(queue: Queue, *, sleeps: int = 0, seconds: int = 60) -> tuple[Lease, list[float], list[str]]:
    """Keep a lease for so many sleeps, by default one more than the script has answers; the lease, the waits, the log."""
    waits: list[float] = []
    said: list[str] = []
    most = sleeps or len(queue.answers) + 1

    async def main() -> Lease:
        with anyio.CancelScope() as scope:

            async def sleep(seconds: float) -> None:
                waits.append(seconds)
                if len(waits) == most:
                    scope.cancel()
                await anyio.lowlevel.checkpoint()

            clockwork = Clockwork(now=lambda: sum(waits), sleep=sleep, in_thread=real_clockwork().in_thread)
            lease = a_lease(queue, clockwork, seconds=seconds, say=said.append)
            await lease.keep()
        return lease

    return anyio.run(main), waits, said


def a_lease(
    queue: Queue, clockwork: Clockwork, *, seconds: int = 60, say: Callable[[str], None] = print, receives: int = 1
) -> Lease:
    message = Message("{}", "r-1", receives)
    lease = Lease(
        queue, "q", message, seconds=seconds, clockwork=clockwork, say=say, holder="i-1", wall=lambda: 1_000_000.0
    )
    lease.job = JOB
    return lease


def with_lease(work: Callable[[Lease], Awaitable[None]], queue: Queue, **more: Any) -> Lease:
    async def main() -> Lease:
        lease = a_lease(queue, real_clockwork(), **more)
        await work(lease)
        return lease

    return anyio.run(main)


def test_a_lease_is_renewed_each_quarter_for_its_whole_length() -> None:
    queue = Queue(None, None, None)
    lease, waits, _ = kept(queue)
    assert queue.asked == [("r-1", 60)] * 3
    assert set(waits) == {15.0}
    assert not lease.lost


@pytest.mark.fault("lease-lapses")
def test_a_renewal_that_is_refused_is_tried_again_a_quarter_later_and_told() -> None:
    lease, waits, said = kept(Queue(BUSY, None))
    assert len(waits) == 3
    assert not lease.lost
    assert "RequestThrottled" in said[0]


@pytest.mark.fault("lease-lapses")
def test_a_lost_lease_is_not_renewed_any_more() -> None:
    queue = Queue(None, LOST, None)
    lease, _, _ = kept(queue)
    assert lease.lost
    assert len(queue.asked) == 2


@pytest.mark.fault("given-back")
def test_a_job_goes_back_as_a_copy_that_nobody_has_counted_even_while_all_is_being_cancelled() -> None:
    """What SQS has counted of the message itself were deaths; they go along."""
    queue = Queue()

    async def cancelled(lease: Lease) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await lease.give_back(10)
            await lease.give_back(10)

    with_lease(cancelled, queue, receives=3)
    assert queue.sent == [(JOB.model_copy(update={"deaths": 4}), 10)]
    assert queue.deleted == ["r-1"]
    assert queue.asked == []


@pytest.mark.fault("given-back")
def test_a_job_whose_copy_cannot_be_sent_goes_back_as_it_is() -> None:
    queue = Queue()
    queue.refuses = BUSY
    with_lease(lambda lease: lease.give_back(10), queue)
    assert (queue.sent, queue.deleted, queue.asked) == ([], [], [("r-1", 10)])


def test_a_message_that_nobody_could_read_goes_back_as_it_is() -> None:
    queue = Queue()

    async def unread(lease: Lease) -> None:
        lease.job = None
        await lease.give_back()

    with_lease(unread, queue)
    assert (queue.sent, queue.asked) == ([], [("r-1", 0)])


def test_what_is_done_or_lost_is_not_given_back() -> None:
    queue = Queue()

    async def done(lease: Lease) -> None:
        await lease.done()
        await lease.give_back()
        await lease.release()

    with_lease(done, queue)
    assert (queue.sent, queue.asked) == ([], [])

    async def lost(lease: Lease) -> None:
        lease.lost = True
        await lease.give_back()

    with_lease(lost, queue)
    assert (queue.sent, queue.asked) == ([], []), "whoever has it goes on"


@pytest.mark.fault("lease-lapses")
def test_of_a_lost_lease_the_further_messages_are_deleted_as_it_is_given_back() -> None:
    """Each would lapse, come again, and be counted as a death, although its job goes on by the one that was lost."""
    queue = Queue()

    async def lost(lease: Lease) -> None:
        lease.take_over(Message("{}", "r-2", 1), JOB)
        lease.lost = True
        await lease.give_back()

    with_lease(lost, queue)
    assert (queue.sent, queue.asked, queue.deleted) == ([], [], ["r-1"])


@pytest.mark.fault("lease-lapses")
def test_a_message_that_is_another_s_by_now_is_lost_and_no_error() -> None:
    assert with_lease(lambda lease: lease.done(), Queue()).lost


def test_before_the_12_hours_are_over_a_copy_takes_the_message_s_place() -> None:
    """SQS refuses a renewal beyond them, and would hand the job to another: so it is told for whom the copy is."""
    queue = Queue(*[None] * 60)
    lease, waits, said = kept(queue, sleeps=60, seconds=3600)
    assert all(900 * place + 3600 <= MOST_LEASE_SECONDS for place in range(1, len(queue.asked) + 1))
    assert 900 * (len(queue.asked) + 2) + 3600 > MOST_LEASE_SECONDS - 60, "not much earlier than it must"
    assert queue.sent == [(JOB.model_copy(update={"holder": "i-1", "leave_until": 1_000_000.0 + LEAVE_SECONDS}), 0)], (
        "once"
    )
    assert queue.deleted == ["r-1"]
    assert lease.lost, "until the copy comes"
    assert "12 hours" in said[0]
    assert waits


@pytest.mark.fault("twelve-hours")
def test_a_copy_that_cannot_be_sent_is_tried_again_while_the_message_is_still_hidden() -> None:
    queue = Queue(*[None] * 60)
    queue.refuses = BUSY
    lease, _, said = kept(queue, sleeps=46, seconds=3600)
    assert not lease.lost
    assert len(said) >= 2


@pytest.mark.fault("lease-lapses")
def test_a_lease_that_was_lost_is_held_again_by_the_message_that_comes() -> None:
    async def again(lease: Lease) -> None:
        lease.lost = True
        lease.take_over(Message("{}", "r-2", 2), JOB)
        await lease.give_back()

    queue = Queue()
    with_lease(again, queue)
    assert queue.deleted == ["r-2"]
    assert queue.sent[0][0].deaths == 3


@pytest.mark.fault("twelve-hours")
def test_a_copy_that_comes_before_its_message_is_deleted_is_held() -> None:
    """This worker polls all the while: it may see the copy at once."""
    leases: list[Lease] = []

    class Quick(Queue):
        def send(self, url: str, bodies: Sequence[str], delay: int = 0) -> None:
            super().send(url, bodies, delay)
            leases[0].take_over(Message(bodies[0], "r-2", 1), JobMessage.read(bodies[0]))

    async def replaced(lease: Lease) -> None:
        leases.append(lease)
        await lease._replace()

    queue = Quick()
    lease = with_lease(replaced, queue)
    assert queue.deleted == ["r-1"]
    assert not lease.lost


@pytest.mark.fault("hang")
def test_giving_back_ends_in_its_time_although_sqs_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that EC2 takes back has seconds; the job comes back by itself when its lease lapses."""
    monkeypatch.setattr("bootstrap.lease.RELEASE_SECONDS", 0.02)
    over = threading.Event()
    sending: list[object] = []

    class Hangs(Queue):
        def send(self, *_: object) -> None:
            sending.append(_)
            over.wait(60)

    async def main() -> None:
        message = Message(body=JOB.write(), receipt="r", receives=1)
        lease = Lease(Hangs(), "q", message, seconds=60, clockwork=real_clockwork(), say=print)
        lease.job = JOB
        await lease.give_back()
        await lease.give_back()
        assert not over.is_set()
        assert len(sending) == 1, "the call that hangs may still send it"

    try:
        anyio.run(main)
    finally:
        over.set()
