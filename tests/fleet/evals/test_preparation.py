"""Jobs' messages are sent once each, also where SQS refuses some of them in between."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.aws.failures import Throttled
from fleet.aws.queues import PartlySent
from fleet.evals.documents import JobMessage
from fleet.evals.preparation import send_jobs


class FakeQueues:
    """Refuses the third call, and takes every other."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.calls = 0

    def send(self, _url: str, bodies: list[str]) -> None:
        self.calls += 1
        if self.calls == 3:
            raise Throttled(service="sqs", operation="SendMessageBatch", code="RequestThrottled", target="q", why="")
        self.taken += [JobMessage.read(body).job for body in bodies]


@pytest.mark.fault("no-answer")
def test_what_was_sent_before_a_refusal_is_not_sent_again() -> None:
    queues = FakeQueues()
    jobs = [f"{number:06}-0" for number in range(35)]
    owed = deque(("e", job) for job in jobs)
    with pytest.raises(Throttled):
        send_jobs(cast("Any", SimpleNamespace(queues=queues)), "q", owed)
    assert queues.taken == jobs[:20]
    send_jobs(cast("Any", SimpleNamespace(queues=queues)), "q", owed)
    assert queues.taken == jobs
    assert not owed


class HalfQueues(FakeQueues):
    """Takes half of the third batch."""

    def send(self, url: str, bodies: list[str]) -> None:
        try:
            super().send(url, bodies)
        except Throttled as refused:
            self.taken += [JobMessage.read(body).job for body in bodies[::2]]
            facts = {name: getattr(refused, name) for name in ("service", "operation", "code", "target", "why")}
            raise PartlySent(**facts, untaken=bodies[1::2]) from refused


@pytest.mark.fault("no-answer")
def test_of_a_batch_that_was_taken_in_part_the_rest_is_sent() -> None:
    queues = HalfQueues()
    jobs = [f"{number:06}-0" for number in range(35)]
    owed = deque(("e", job) for job in jobs)
    with pytest.raises(PartlySent):
        send_jobs(cast("Any", SimpleNamespace(queues=queues)), "q", owed)
    assert [job for _, job in owed] == [*jobs[21:30:2], *jobs[30:]]
    send_jobs(cast("Any", SimpleNamespace(queues=queues)), "q", owed)
    assert sorted(queues.taken) == jobs
