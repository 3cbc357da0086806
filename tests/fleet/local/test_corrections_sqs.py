"""One contract test for each rule of SQS that moto doesn't keep; the docstring says AWS's rule."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any
from urllib.parse import urlparse

import pytest
from botocore.exceptions import ClientError

from fleet.local.faults import FaultKit
from tests.fleet.local.conftest import Host, wait_until


@pytest.fixture
def queue(sqs: Any, unique: str) -> Iterator[str]:
    url = sqs.create_queue(QueueName=unique)["QueueUrl"]
    yield url
    sqs.delete_queue(QueueUrl=url)


def receive(sqs: Any, queue: str, *, hidden: int = 30, wait: int = 0, most: int = 10) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sqs.receive_message(
        QueueUrl=queue,
        MaxNumberOfMessages=most,
        VisibilityTimeout=hidden,
        WaitTimeSeconds=wait,
        AttributeNames=["ApproximateReceiveCount"],
    ).get("Messages", [])
    return found


def send(sqs: Any, queue: str, count: int) -> None:
    for first in range(0, count, 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(first, min(first + 10, count))]
        sqs.send_message_batch(QueueUrl=queue, Entries=entries)


def depth(sqs: Any, queue: str) -> tuple[int, int]:
    """Visible and in flight."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
    return int(found[names[0]]), int(found[names[1]])


def test_each_message_is_delivered_once_among_many_receivers(sqs: Any, queue: str) -> None:
    """A message in flight is delivered to nobody else, and a deleted one never comes back."""
    send(sqs, queue, 200)

    def work(_: int) -> list[str]:
        done = []
        while found := receive(sqs, queue):
            for message in found:
                done.append(message["Body"])
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return done

    with ThreadPoolExecutor(8) as pool:
        bodies = [body for done in pool.map(work, range(8)) for body in done]
    assert sorted(bodies, key=int) == [str(n) for n in range(200)]
    assert depth(sqs, queue) == (0, 0)


def test_a_stale_receipt_deletes_nothing(sqs: Any, queue: str) -> None:
    """DeleteMessage with a receipt that isn't the newest succeeds; the message stays with the one who holds it."""
    send(sqs, queue, 1)
    stale = receive(sqs, queue, hidden=1)[0]["ReceiptHandle"]
    newest = receive(sqs, queue, hidden=30, wait=3)[0]["ReceiptHandle"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=stale)
    assert depth(sqs, queue) == (0, 1)
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=newest)
    assert depth(sqs, queue) == (0, 0)
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=newest)


def test_a_lapsed_receipt_still_deletes_its_message(sqs: Any, queue: str) -> None:
    """The newest receipt deletes the message also after its visibility timeout, while nobody else has received it."""
    send(sqs, queue, 1)
    receipt = receive(sqs, queue, hidden=1)[0]["ReceiptHandle"]
    wait_until(lambda: depth(sqs, queue) == (1, 0))
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=receipt)
    assert depth(sqs, queue) == (0, 0)


def test_a_lapsed_lease_is_not_extended(sqs: Any, queue: str) -> None:
    """ChangeMessageVisibility of a message whose timeout has passed: MessageNotInflight."""
    send(sqs, queue, 1)
    receipt = receive(sqs, queue, hidden=1)[0]["ReceiptHandle"]
    wait_until(lambda: depth(sqs, queue) == (1, 0))
    with pytest.raises(sqs.exceptions.MessageNotInflight) as caught:
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=30)
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.MessageNotInflight"


@pytest.mark.parametrize("how", ["deleted", "received again"])
def test_a_lost_message_is_not_extended(sqs: Any, queue: str, how: str) -> None:
    """ChangeMessageVisibility of a message that is gone, or another's by now: InvalidParameterValue."""
    send(sqs, queue, 1)
    receipt = receive(sqs, queue, hidden=1)[0]["ReceiptHandle"]
    if how == "deleted":
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=receipt)
    else:
        assert receive(sqs, queue, wait=3)
    with pytest.raises(ClientError) as caught:
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=30)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_a_made_up_receipt_is_invalid(sqs: Any, queue: str) -> None:
    """A receipt that was never handed out: ReceiptHandleIsInvalid."""
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle="made up")
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle="made up", VisibilityTimeout=1)


def test_a_batch_names_the_entries_that_were_refused(sqs: Any, queue: str) -> None:
    """ChangeMessageVisibilityBatch answers for each entry on its own."""
    send(sqs, queue, 2)
    first, second = (message["ReceiptHandle"] for message in receive(sqs, queue))
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=first)
    entries = [
        {"Id": name, "ReceiptHandle": receipt, "VisibilityTimeout": 60}
        for name, receipt in (("gone", first), ("held", second))
    ]
    answer = sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["held"]
    assert [entry["Id"] for entry in answer["Failed"]] == ["gone"]


def test_a_message_is_hidden_for_twelve_hours_at_most(sqs: Any, queue: str) -> None:
    """12 hours in all, counted from the receive: InvalidParameterValue beyond."""
    send(sqs, queue, 1)
    receipt = receive(sqs, queue)[0]["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=43_000)
    with pytest.raises(ClientError) as caught:
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=43_200)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_a_released_message_is_there_at_once(sqs: Any, queue: str) -> None:
    """A visibility timeout of 0 gives a message back, and wakes those who wait for one."""
    send(sqs, queue, 1)
    receipt = receive(sqs, queue)[0]["ReceiptHandle"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive, sqs, queue, wait=20)
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=0)
        begun = time.monotonic()
        found = waiting.result()
    assert time.monotonic() - begun < 5
    assert found[0]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_long_poll_holds_nobody_up(sqs: Any, queue: str) -> None:
    """Receivers that wait hold no lock: a message that is sent meanwhile reaches one of them at once."""
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(receive, sqs, queue, wait=3, most=1) for _ in range(3)]
        begun = time.monotonic()
        send(sqs, queue, 3)
        assert sorted(one.result()[0]["Body"] for one in waiting) == ["0", "1", "2"]
    assert time.monotonic() - begun < 3


def test_an_empty_long_poll_ends_after_its_time(sqs: Any, queue: str) -> None:
    """WaitTimeSeconds is how long an empty queue is waited for, no less and not much more."""
    begun = time.monotonic()
    assert receive(sqs, queue, wait=1) == []
    assert 0.9 < time.monotonic() - begun < 5


def test_a_message_comes_back_when_its_lease_lapses_during_a_long_poll(sqs: Any, queue: str) -> None:
    """Nobody sends anything: time alone makes a message visible to those who wait."""
    send(sqs, queue, 1)
    receive(sqs, queue, hidden=1)
    begun = time.monotonic()
    assert receive(sqs, queue, wait=20)
    assert time.monotonic() - begun < 5


def test_nothing_is_delivered_to_a_client_that_went_away(sqs: Any, queue: str, host: Host, kit: FaultKit) -> None:
    """A worker killed in its long poll must not take a message with it: SQS sees the closed connection."""
    address = urlparse(host.aws)
    assert address.hostname
    assert address.port
    body = json.dumps({"QueueUrl": queue, "WaitTimeSeconds": 20, "VisibilityTimeout": 600}).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: sqs\r\nContent-Type: application/x-amz-json-1.0\r\n"
        "X-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=x\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    heard = kit.calls("ReceiveMessage")
    killed = socket.create_connection((address.hostname, address.port))
    killed.sendall(head.encode() + body)
    wait_until(lambda: kit.calls("ReceiveMessage") > heard)
    killed.close()
    send(sqs, queue, 1)
    assert receive(sqs, queue, wait=2)


def test_a_message_goes_to_the_dead_letters_after_its_receives(sqs: Any, queue: str, unique: str) -> None:
    """At the receive after maxReceiveCount receives a message moves to the dead letter queue."""
    dead = sqs.create_queue(QueueName=f"{unique}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy})
    send(sqs, queue, 1)
    receipt = receive(sqs, queue)[0]["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=0)
    assert receive(sqs, queue) == []
    assert receive(sqs, dead)[0]["Body"] == "0"
    sqs.delete_queue(QueueUrl=dead)


def test_a_message_older_than_the_queue_keeps_is_gone(sqs: Any, queue: str) -> None:
    """After MessageRetentionPeriod a message is deleted, whether it was received or not."""
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"MessageRetentionPeriod": "1"})
    send(sqs, queue, 1)
    wait_until(lambda: receive(sqs, queue, hidden=0) == [])
    assert depth(sqs, queue) == (0, 0)


def test_a_delayed_message_is_seen_when_its_delay_has_passed(sqs: Any, queue: str) -> None:
    """DelaySeconds hides a new message; above 900 it is refused."""
    begun = time.monotonic()
    sqs.send_message(QueueUrl=queue, MessageBody="late", DelaySeconds=1)
    assert receive(sqs, queue, wait=5)[0]["Body"] == "late"
    assert time.monotonic() - begun >= 0.9
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl=queue, MessageBody="later", DelaySeconds=901)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_message_attributes_travel(sqs: Any, queue: str) -> None:
    """Attributes come with the message where they are asked for."""
    attribute = {"DataType": "String", "StringValue": "value"}
    sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes={"name": attribute})
    found = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"][0]
    assert found["MessageAttributes"]["name"]["StringValue"] == "value"


def test_fifo_queues_keep_their_order(sqs: Any, unique: str) -> None:
    """FIFO queues keep their order within a group, under the same lock."""
    url = sqs.create_queue(QueueName=f"{unique}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for n in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(n), MessageGroupId="g", MessageDeduplicationId=str(n))
    found = receive(sqs, url)
    assert [message["Body"] for message in found] == ["0", "1", "2"]
    for message in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert depth(sqs, url) == (0, 0)
    sqs.delete_queue(QueueUrl=url)


def test_a_deep_queue_is_as_quick_as_a_shallow_one(sqs: Any, queue: str) -> None:
    """moto took 250 s to be sent 5,000 messages. Compared are the quickest of some calls each: the machine may be busy."""

    def quickest() -> float:
        took = []
        for _ in range(10):
            begun = time.perf_counter()
            send(sqs, queue, 10)
            took.append(time.perf_counter() - begun)
        return min(took)

    shallow = quickest()
    threads = [Thread(target=send, args=(sqs, queue, 450)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert quickest() < 4 * shallow
    for message in receive(sqs, queue):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    assert depth(sqs, queue) == (1990, 0)
