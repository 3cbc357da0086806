from __future__ import annotations

import anyio

from bootstrap.clockwork import Clockwork, real_clockwork
from bootstrap.lease import Lease
from fleet.aws.failures import Throttled
from fleet.aws.queues import LeaseLost, Message

BUSY = Throttled(service="sqs", operation="ChangeMessageVisibility", code="RequestThrottled", target="q", why="")
LOST = LeaseLost(queue="q", code="ReceiptHandleIsInvalid")


class Queue:
    """Answers renewals from a script, then stops the test's wait."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    def extend(self, url: str, receipt: str, seconds: int) -> None:
        self.asked.append((receipt, seconds))
        if answer := self.answers.pop(0):
            raise answer

    def release(self, url: str, receipt: str, delay: int = 0) -> bool:
        self.asked.append((receipt, delay))
        return True

    def done(self, url: str, receipt: str) -> bool:
        return False


def kept(queue: Queue) -> tuple[Lease, list[float], list[str]]:
    """Keep a lease of 60 seconds until the script is at its end; the lease, the waits, the log."""
    waits: list[float] = []
    said: list[str] = []

    async def main() -> Lease:
        with anyio.CancelScope() as scope:

            async def sleep(seconds: float) -> None:
                waits.append(seconds)
                if not queue.answers:
                    scope.cancel()
                await anyio.lowlevel.checkpoint()

            clockwork = Clockwork(now=lambda: 0.0, sleep=sleep, in_thread=real_clockwork().in_thread)
            lease = Lease(queue, "q", Message("{}", "r-1", 1), seconds=60, clockwork=clockwork, say=said.append)
            await lease.keep()
        return lease

    return anyio.run(main), waits, said


def test_a_lease_is_renewed_each_quarter_for_its_whole_length() -> None:
    queue = Queue(None, None, None)
    lease, waits, _ = kept(queue)
    assert queue.asked == [("r-1", 60)] * 3
    assert set(waits) == {15.0}
    assert not lease.lost


def test_a_renewal_that_is_refused_is_tried_again_a_quarter_later_and_told() -> None:
    lease, waits, said = kept(Queue(BUSY, None))
    assert len(waits) == 3
    assert not lease.lost
    assert "RequestThrottled" in said[0]


def test_a_lost_lease_is_not_renewed_any_more() -> None:
    queue = Queue(None, LOST, None)
    lease, _, _ = kept(queue)
    assert lease.lost
    assert len(queue.asked) == 2


def test_a_release_is_made_even_while_all_is_being_cancelled() -> None:
    queue = Queue()

    async def main() -> None:
        lease = Lease(queue, "q", Message("{}", "r-1", 1), seconds=60, clockwork=real_clockwork(), say=print)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await lease.release()

    anyio.run(main)
    assert queue.asked == [("r-1", 0)]


def test_a_message_that_is_another_s_by_now_is_lost_and_no_error() -> None:
    async def main() -> Lease:
        lease = Lease(Queue(), "q", Message("{}", "r-1", 1), seconds=60, clockwork=real_clockwork(), say=print)
        await lease.done()
        return lease

    assert anyio.run(main).lost
