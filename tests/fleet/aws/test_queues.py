from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.failures import AwsRefused, Throttled
from fleet.aws.queues import (
    BATCH,
    BATCH_BYTES,
    MOST_LEASE_SECONDS,
    NEW_SECONDS,
    SEND_TRIES,
    LeaseLost,
    PartlySent,
    QueueDeletedRecently,
    QueueGone,
    Queues,
    batches,
)
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import fail


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def queues(aws: Aws, waits: list[float]) -> Queues:
    return Queues(aws, pause=waits.append)


@pytest.fixture
def queue(queues: Queues, unique: str) -> str:
    return queues.create(unique, tags={"inspect-fleet:run": "r1"}, lease_seconds=60)


def test_a_queue_is_born_with_tags_lease_retention_and_long_poll(queues: Queues, queue: str) -> None:
    found = queues.aws.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert found["VisibilityTimeout"] == "60"
    assert found["MessageRetentionPeriod"] == str(14 * 86_400)
    assert found["ReceiveMessageWaitTimeSeconds"] == "20"
    assert queues.tags(queue) == {"inspect-fleet:run": "r1"}


def test_creating_a_queue_again_gives_the_same_queue(queues: Queues, unique: str) -> None:
    urls = {queues.create(unique, tags={}, lease_seconds=60) for _ in range(2)}
    assert len(urls) == 1


def test_a_queue_is_found_by_the_beginning_of_its_name(queues: Queues, unique: str) -> None:
    queues.aws.sqs.meta.events.register(
        "provide-client-params.sqs.ListQueues", lambda params, **_: params | {"MaxResults": 2}
    )
    made = [queues.create(f"{unique}-{n}", tags={}, lease_seconds=60) for n in range(5)]
    queues.create(f"other-{unique}", tags={}, lease_seconds=60)
    assert sorted(queues.find(f"{unique}-")) == sorted(made)
    assert queues.find("no-such-queue") == []


def test_deleting_is_content_with_nothing(queues: Queues, queue: str) -> None:
    queues.delete(queue)
    queues.delete(queue)
    assert queue not in queues.find(queue.rsplit("/", 1)[1])


def test_a_deleted_queue_is_gone_for_everyone_else(queues: Queues, queue: str) -> None:
    queues.delete(queue)
    with pytest.raises(QueueGone):
        queues.receive(queue, wait=0)
    with pytest.raises(QueueGone):
        queues.send(queue, ["x"])
    with pytest.raises(QueueGone):
        queues.depth(queue)


def test_every_message_arrives_once_with_its_receives(queues: Queues, queue: str) -> None:
    bodies = [f"job {n} — ü" for n in range(23)]
    queues.send(queue, bodies)
    held = []
    while some := queues.receive(queue, wait=0):
        assert len(some) <= BATCH
        held += some
    assert sorted(message.body for message in held) == sorted(bodies)
    assert {message.receives for message in held} == {1}
    assert all(queues.done(queue, message.receipt) for message in held)
    assert queues.depth(queue).total == 0


def test_no_more_messages_than_asked_for(queues: Queues, queue: str) -> None:
    queues.send(queue, ["a", "b", "c"])
    assert len(queues.receive(queue, most=2, wait=0)) == 2


def test_a_delayed_message_is_counted_and_not_received(queues: Queues, queue: str) -> None:
    queues.send(queue, ["later"], delay=900)
    assert queues.receive(queue, wait=0) == []
    depth = queues.depth(queue)
    assert (depth.waiting, depth.leased, depth.delayed, depth.total) == (0, 0, 1, 1)


def test_a_leased_message_is_hidden_and_comes_back_when_released(queues: Queues, queue: str) -> None:
    queues.send(queue, ["job"])
    [first] = queues.receive(queue, wait=0)
    assert queues.receive(queue, wait=0) == []
    assert queues.depth(queue).leased == 1
    queues.extend(queue, first.receipt, 120)
    assert queues.receive(queue, wait=0) == []
    assert queues.release(queue, first.receipt)
    [second] = queues.receive(queue, wait=0)
    assert (second.body, second.receives) == ("job", 2)


def test_a_message_received_too_often_goes_to_the_dead_letter_queue(queues: Queues, unique: str) -> None:
    dead = queues.create(f"{unique}-dead", tags={}, lease_seconds=60)
    work = queues.create(unique, tags={}, lease_seconds=60, dead_letter=dead, max_receives=2)
    queues.send(work, ["poison"])
    for _ in range(2):
        [message] = queues.receive(work, wait=0)
        queues.release(work, message.receipt)
    assert queues.receive(work, wait=0) == []
    assert [message.body for message in queues.receive(dead, wait=0)] == ["poison"]


NOT_YET = ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"]


@pytest.mark.parametrize("code", NOT_YET)
def test_a_queue_that_sqs_does_not_know_yet_is_waited_for(
    queues: Queues, unique: str, waits: list[float], code: str
) -> None:
    """Right after CreateQueue, its ARN, what names it, and the first messages may still be told that it isn't there."""
    sqs = queues.aws.sqs
    dead = queues.create(f"{unique}-dead", tags={}, lease_seconds=60)
    fail(sqs, "GetQueueAttributes", code, times=1)
    fail(sqs, "CreateQueue", code, times=1)
    work = queues.create(unique, tags={}, lease_seconds=60, dead_letter=dead)
    assert len(waits) == 2
    calls: list[tuple[str, Callable[[], object]]] = [
        ("SendMessageBatch", lambda: queues.send(work, ["job"])),
        ("GetQueueAttributes", lambda: queues.depth(work)),
        ("ReceiveMessage", lambda: queues.receive(work, wait=0)),
    ]
    for operation, call in calls:
        waits.clear()
        fail(sqs, operation, code, times=2)
        call()
        assert len(waits) == 2
    waits.clear()
    fail(sqs, "SendMessageBatch", code)
    with pytest.raises(QueueGone):
        queues.send(work, ["job"])
    assert sum(waits) == NEW_SECONDS


def test_a_queue_that_is_gone_is_not_waited_for(aws: Aws, queues: Queues, queue: str, waits: list[float]) -> None:
    """Neither by whoever deleted it, nor by whoever didn't make it, nor long after it was made."""
    now = 0.0
    other = Queues(aws, pause=waits.append)
    maker = Queues(aws, pause=waits.append, clock=lambda: now)
    assert maker.create(queue.rsplit("/", 1)[1], tags={"inspect-fleet:run": "r1"}, lease_seconds=60) == queue
    queues.delete(queue)
    now = NEW_SECONDS + 1.0
    for each in (queues, other, maker):
        with pytest.raises(QueueGone):
            each.send(queue, ["job"])
    assert waits == []


@pytest.mark.parametrize("code", ["QueueDeletedRecently", "AWS.SimpleQueueService.QueueDeletedRecently"])
def test_the_name_of_a_queue_deleted_just_now_is_waited_for(
    queues: Queues, unique: str, waits: list[float], code: str
) -> None:
    fail(queues.aws.sqs, "CreateQueue", code, "You must wait 60 seconds", times=3)
    queues.create(unique, tags={}, lease_seconds=60)
    assert len(waits) == 3
    waits.clear()
    fail(queues.aws.sqs, "CreateQueue", code, "You must wait 60 seconds")
    with pytest.raises(QueueDeletedRecently, match=rf"{unique}.*deleted a moment ago.*again in a minute"):
        queues.create(unique, tags={}, lease_seconds=60)
    assert 60 < sum(waits) <= 65


def test_another_refusal_of_a_queue_is_told_at_once(queues: Queues, unique: str, waits: list[float]) -> None:
    fail(queues.aws.sqs, "CreateQueue", "InvalidAttributeValue")
    with pytest.raises(AwsRefused, match="InvalidAttributeValue"):
        queues.create(unique, tags={}, lease_seconds=60)
    assert waits == []


LAPSED = [
    "AWS.SimpleQueueService.MessageNotInflight",
    "MessageNotInflight",
    "ReceiptHandleIsInvalid",
    "InvalidParameterValue",
]


@pytest.mark.parametrize("code", LAPSED)
def test_a_lapsed_lease_is_told_apart_from_other_failures(queues: Queues, queue: str, code: str) -> None:
    fail(queues.aws.sqs, "ChangeMessageVisibility", code, "lapsed")
    fail(queues.aws.sqs, "DeleteMessage", code, "lapsed")
    with pytest.raises(LeaseLost, match=code):
        queues.extend(queue, "receipt", 60)
    assert not queues.release(queue, "receipt")
    assert not queues.done(queue, "receipt")


def test_a_receipt_that_never_was_is_a_lost_lease(queues: Queues, queue: str) -> None:
    with pytest.raises(LeaseLost):
        queues.extend(queue, "no-such-receipt", 60)
    assert not queues.done(queue, "no-such-receipt")


def test_another_failure_of_a_lease_is_raised_as_what_it_is(queues: Queues, queue: str) -> None:
    fail(queues.aws.sqs, "ChangeMessageVisibility", "RequestThrottled")
    with pytest.raises(Throttled):
        queues.extend(queue, "receipt", 60)


@pytest.mark.parametrize("seconds", [-1, MOST_LEASE_SECONDS + 1])
def test_a_lease_that_sqs_cannot_give_is_a_bug_and_no_lost_lease(queues: Queues, queue: str, seconds: int) -> None:
    with pytest.raises(ValueError, match="SQS takes"):
        queues.extend(queue, "receipt", seconds)


class SqsThatFailsSome:
    """An SQS client whose answers name failed entries; what it took is in `taken`."""

    def __init__(self, code: str, *, sender_fault: bool, rounds: int) -> None:
        self.code, self.sender_fault, self.rounds = code, sender_fault, rounds
        self.taken: list[str] = []

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, object]:  # noqa: N803
        failed = Entries[1:] if self.rounds > 0 else []
        self.rounds -= 1
        self.taken += [entry["MessageBody"] for entry in Entries if entry not in failed]
        return {"Failed": [{"Id": e["Id"], "Code": self.code, "SenderFault": self.sender_fault} for e in failed]}


class FakeAws(Aws):
    def __init__(self, sqs: SqsThatFailsSome) -> None:
        super().__init__("us-east-1")
        self._clients["sqs"] = sqs


def test_messages_that_sqs_could_not_take_are_sent_again_and_no_others(waits: list[float]) -> None:
    sqs = SqsThatFailsSome("InternalError", sender_fault=False, rounds=2)
    Queues(FakeAws(sqs), pause=waits.append).send("url", list("abcd"))
    assert sqs.taken == ["a", "b", "c", "d"]
    assert len(waits) == 2
    assert waits[0] < waits[1]


def test_messages_that_sqs_never_takes_are_an_error_with_their_count(waits: list[float]) -> None:
    sqs = SqsThatFailsSome("RequestThrottled", sender_fault=False, rounds=99)
    with pytest.raises(PartlySent, match="RequestThrottled: 5 of 10 messages not taken") as refused:
        Queues(FakeAws(sqs), pause=waits.append).send("url", [str(n) for n in range(10)])
    assert sorted([*refused.value.untaken, *sqs.taken]) == [str(n) for n in range(10)]
    assert len(waits) == SEND_TRIES - 1


def test_a_message_at_fault_is_not_sent_again(waits: list[float]) -> None:
    sqs = SqsThatFailsSome("InvalidMessageContents", sender_fault=True, rounds=99)
    with pytest.raises(AwsRefused, match="InvalidMessageContents"):
        Queues(FakeAws(sqs), pause=waits.append).send("url", ["a", "b"])
    assert waits == []


@given(st.lists(st.integers(0, BATCH_BYTES * 2).map(lambda size: "x" * size) | st.text(max_size=5), max_size=40))
def test_batches_keep_all_messages_in_order_and_the_limits(bodies: list[str]) -> None:
    made = list(batches(bodies))
    assert [body for batch in made for body in batch] == bodies
    for batch in made:
        assert 1 <= len(batch) <= BATCH
        assert len(batch) == 1 or sum(len(body.encode()) for body in batch) <= BATCH_BYTES
