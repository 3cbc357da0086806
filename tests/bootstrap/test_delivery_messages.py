"""One job and several messages: those that SQS holds no longer, those that come again, and those that come together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bootstrap import lease as lease_module
from bootstrap.delivery import PASS_DELAY
from fleet.aws.queues import LeaseLost, Message
from fleet.evals.documents import JobMessage
from tests.bootstrap import world as world_module
from tests.bootstrap.wide_world import BUSY, Wide
from tests.bootstrap.world import EVAL, LAYOUT, WORK, FakeQueues, Script, VirtualTime


class BoundQueues(FakeQueues):
    """Hides no message for longer than `bound` seconds after it was taken, as SQS after 12 hours."""

    bound = 200.0

    def __init__(self, time: VirtualTime, journal: list[str]) -> None:
        super().__init__(time, journal)
        self.until: dict[str, float] = {}
        self._dice = random.Random(7)  # noqa: S311

    def receive(self, url: str, *, most: int = 10, wait: int = 20) -> list[Message]:
        if self._dice.random() < 0.5:  # nobody is always the first: here, all poll in step
            return []
        found = super().receive(url, most=most, wait=wait)
        for held in self.held:
            if held.receipt in {message.receipt for message in found}:
                self.until[held.receipt] = self.time.now + self.bound
        return found

    def extend(self, url: str, receipt: str, seconds: int) -> None:
        self._ask("extend")
        if self.time.now + seconds > self.until[receipt]:
            raise LeaseLost(queue=WORK, code="InvalidParameterValue")
        super().extend(url, receipt, seconds)


@pytest.fixture
def bound_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "FakeQueues", BoundQueues)
    monkeypatch.setattr(lease_module, "LONGEST_HOLD", BoundQueues.bound - 10)


@pytest.mark.usefixtures("bound_hold")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.fault("twelve-hours")
def test_a_job_longer_than_sqs_holds_any_message_runs_once(tmp_path: Path, workers: int) -> None:
    """Its worker goes on under a fresh copy; others that see the copy first leave it to that one."""
    world = Wide(tmp_path, 1, slots=2)
    world.idle_seconds = 700
    world.scripts[world.jobs[0]] = Script(seconds=600)
    world.work(workers=workers)
    assert world.ran == world.jobs
    assert world.queues.held == []
    assert sum("12 hours" in line for line in world.said) >= 3
    passed_on = sum(worker.outcomes["held already"] for worker in world.workers[1:])
    assert (passed_on > 0) == (workers > 1)


@pytest.mark.usefixtures("bound_hold")
@pytest.mark.fault("twelve-hours")
def test_a_copy_whose_holder_is_gone_is_run_by_another(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    first = world.queues.held[0]
    first.body = JobMessage.read(first.body).model_copy(update={"holder": "i-gone", "leave_until": 60.0}).write()
    world.work()
    assert world.ran == world.jobs
    assert 60 <= world.time.now <= 60 + PASS_DELAY + 3 + 1 + 30 + 3
    assert world.objects.held[LAYOUT.result(EVAL, world.jobs[0])]


@pytest.mark.fault("lease-lapses")
def test_a_message_that_comes_again_while_its_job_runs_here_starts_nothing(tmp_path: Path) -> None:
    """The lease lapsed, and this worker has free slots: it holds the job again instead of running it twice."""
    world = Wide(tmp_path, 1, slots=3)
    world.scripts[world.jobs[0]] = Script(seconds=200)
    refused = world.queues.refuse
    world.at(1, lambda: refused.update(extend=BUSY))
    world.at(100, refused.clear)
    world.work()
    assert world.ran == world.jobs
    assert world.workers[0].outcomes["held already"] >= 1
    assert world.queues.held == [], "and it is the message that came again which is deleted"


@pytest.mark.fault("lease-lapses")
def test_two_messages_of_a_job_that_come_together_run_it_once(tmp_path: Path) -> None:
    """SQS took a message twice, as after a lost answer. Both are held, so that neither comes again."""
    world = Wide(tmp_path, 1, slots=3)
    world.queues.send(WORK, [world.queues.held[0].body])
    world.scripts[world.jobs[0]] = Script(seconds=200)
    world.work()
    assert world.ran == world.jobs
    assert world.workers[0].outcomes == {"done": 1, "held already": 1}
    assert world.queues.held == []


@pytest.mark.fault("given-back")
def test_a_job_of_two_messages_that_is_given_back_was_in_no_death(tmp_path: Path) -> None:
    """However long it ran, and by one message."""
    world = Wide(tmp_path, 1, slots=3)
    world.queues.send(WORK, [world.queues.held[0].body])
    world.scripts[world.jobs[0]] = Script(seconds=5000)
    world.work(stop_at=2000)
    assert [(message.deaths, message.failures) for message in world.messages()] == [(0, 0)]
