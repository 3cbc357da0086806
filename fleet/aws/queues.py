"""SQS queues and the messages on them: leases, batches, long polls, and the tags by which a reaper finds what was left.

A message is leased: it stays hidden from others for the queue's `lease_seconds`, which `extend` renews. Delivery is at least
once, so that a receipt may be worth nothing any more at any time; that is an answer here, not a surprise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.session import Aws
from fleet.errors import FleetError

if TYPE_CHECKING:
    from mypy_boto3_sqs.literals import QueueAttributeNameType
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

GONE = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
"""No such queue; SQS names it by either, as the protocol of the day has it."""
LAPSED = frozenset(
    {
        "AWS.SimpleQueueService.MessageNotInflight",
        "InvalidParameterValue",  # SQS's answer for a message that was deleted, and past its 12 hours
        "MessageNotInflight",
        "ReceiptHandleIsInvalid",
    }
)
"""The receipt is worth nothing any more: deleted, given to another, or held for 12 hours."""

DELETED_RECENTLY = frozenset({"AWS.SimpleQueueService.QueueDeletedRecently", "QueueDeletedRecently"})
"""The name was another queue's, deleted within the last 60 seconds."""
NO_TARGET = GONE | {"InvalidAttributeValue", "InvalidParameterValue"}
"""The dead-letter queue that a new queue names isn't known yet; SQS words it as a bad attribute."""

NEW_SECONDS = 10
"""How long SQS may not know a queue that it has made; about a second, as a rule."""
NAME_SECONDS = 65
"""How long a deleted queue's name isn't given again: SQS says 60."""

RETENTION_SECONDS = 14 * 24 * 3600
"""The most SQS allows: a run that is resumed after a holiday finds its messages."""
LONG_POLL_SECONDS = 20
"""The most SQS allows: an empty queue costs three calls a minute."""
MOST_LEASE_SECONDS = 12 * 3600
BATCH = 10
"""Messages a call, SQS's limit."""
BATCH_BYTES = 256 * 1024
"""Bytes a call: SQS takes 1 MiB by now, and this much wherever it runs."""
SEND_TRIES = 5
"""Of messages that SQS couldn't take for a reason of its own."""


T = TypeVar("T")


class QueueGone(AwsRefused):
    """The queue isn't there: deleted with its run, or never made."""


class QueueDeletedRecently(AwsRefused):
    """SQS doesn't give a queue's name again yet."""

    def message(self) -> str:
        """One line, with what helps."""
        return (
            f"SQS doesn't give the name {self.target} again yet: a queue of this name was deleted a moment ago. "
            "Start again in a minute"
        )


class PartlySent(AwsRefused):
    """SQS took some messages of a batch, and after several tries not the others."""

    untaken: list[str]
    """Their bodies."""


class LeaseLost(FleetError):
    """The lease of a message lapsed: another may hold it. Stop what was done for it."""

    queue: str
    code: str

    def message(self) -> str:
        """One line: the queue and SQS's code."""
        return f"the lease of a message of {self.queue} lapsed ({self.code})"


@dataclass(frozen=True, slots=True)
class Message:
    """A message that this process holds until its lease lapses."""

    body: str
    receipt: str
    receives: int
    """How often it was handed out, this time included; SQS's count, approximate by its own word."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How many messages a queue holds. SQS counts approximately: good to show, not to decide that work is done."""

    waiting: int
    leased: int
    delayed: int

    @property
    def total(self) -> int:
        """All that aren't done."""
        return self.waiting + self.leased + self.delayed


class Queues:
    """The queues of one account and region. Every method raises AwsRefused where SQS refuses, QueueGone for an absent queue."""

    def __init__(
        self, aws: Aws, *, pause: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.aws = aws
        self._pause = pause
        self._clock = clock
        self._born: dict[str, float] = {}
        """When this object made which queue, by the clock."""

    def create(
        self,
        name: str,
        *,
        tags: Mapping[str, str],
        lease_seconds: int,
        dead_letter: str | None = None,
        max_receives: int = 100,
    ) -> str:
        """A queue with these tags from its first moment; its URL. Once made, the same call gives the same queue.

        Messages received `max_receives` times go to the queue at the URL `dead_letter`. The name of a queue deleted within
        the last minute is waited for, for so long; QueueDeletedRecently after that.
        """
        attributes: dict[QueueAttributeNameType, str] = {
            "VisibilityTimeout": str(lease_seconds),
            "MessageRetentionPeriod": str(RETENTION_SECONDS),
            "ReceiveMessageWaitTimeSeconds": str(LONG_POLL_SECONDS),
        }
        if dead_letter is not None:
            arn = self._attributes(dead_letter, "QueueArn")["QueueArn"]
            attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": max_receives})
        waited = 0.0
        while True:
            try:
                with calling("sqs", name):
                    answer = self.aws.sqs.create_queue(QueueName=name, Attributes=attributes, tags=dict(tags))
            except AwsRefused as refusal:
                step, patience = _patience(refusal.code, names_another=dead_letter is not None)
                if waited >= patience:
                    if refusal.code in DELETED_RECENTLY:
                        raise _as(QueueDeletedRecently, refusal) from refusal
                    raise
            else:
                self._born[answer["QueueUrl"]] = self._clock()
                return answer["QueueUrl"]
            self._pause(step)
            waited += step

    def delete(self, url: str) -> None:
        """Delete the queue and its messages; an absent one is success. SQS may list it for another minute."""
        self._born.pop(url, None)
        try:
            with calling("sqs", url):
                self.aws.sqs.delete_queue(QueueUrl=url)
        except AwsRefused as refusal:
            if refusal.code not in GONE:
                raise

    def find(self, prefix: str) -> list[str]:
        """The URLs of all queues whose names begin with `prefix`."""
        with calling("sqs", f"{prefix}*"):
            pages = self.aws.sqs.get_paginator("list_queues").paginate(
                QueueNamePrefix=prefix, PaginationConfig={"PageSize": 1000}
            )
            return [url for page in pages for url in page.get("QueueUrls", [])]

    def tags(self, url: str) -> dict[str, str]:
        """The queue's tags."""
        return self._when_known(url, lambda: self.aws.sqs.list_queue_tags(QueueUrl=url)).get("Tags", {})

    def tag(self, url: str, tags: Mapping[str, str]) -> None:
        """Put these tags on the queue, beside those that it has."""
        with self._asking(url):
            self.aws.sqs.tag_queue(QueueUrl=url, Tags=dict(tags))

    def depth(self, url: str) -> Depth:
        """How many messages there are, about."""
        found = self._attributes(
            url,
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        )
        return Depth(
            waiting=int(found["ApproximateNumberOfMessages"]),
            leased=int(found["ApproximateNumberOfMessagesNotVisible"]),
            delayed=int(found["ApproximateNumberOfMessagesDelayed"]),
        )

    def send(self, url: str, bodies: Sequence[str], delay: int = 0) -> None:
        """Send each body as one message, hidden for `delay` seconds (at most 900).

        AwsRefused: some may have been sent; PartlySent says which weren't, of the batch that it is about.
        """
        for batch in batches(bodies):
            self._send_batch(url, batch, delay)

    def receive(self, url: str, *, most: int = BATCH, wait: int = LONG_POLL_SECONDS) -> list[Message]:
        """Lease up to `most` messages (10 at most), waiting up to `wait` seconds for the first. Empty: none came."""
        answer = self._when_known(
            url,
            lambda: self.aws.sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=min(most, BATCH),
                WaitTimeSeconds=min(wait, LONG_POLL_SECONDS),
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            ),
        )
        return [
            Message(
                body=message["Body"],
                receipt=message["ReceiptHandle"],
                receives=int(message["Attributes"]["ApproximateReceiveCount"]),
            )
            for message in answer.get("Messages", [])
        ]

    def extend(self, url: str, receipt: str, seconds: int) -> None:
        """Keep the message for `seconds` from now. LeaseLost: another may hold it, or it was held for 12 hours."""
        if not 0 <= seconds <= MOST_LEASE_SECONDS:
            # SQS answers this with the code that also means a lapsed receipt.
            raise ValueError(f"a lease of {seconds} seconds: SQS takes 0 to {MOST_LEASE_SECONDS}")
        try:
            with self._asking(url):
                self.aws.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=seconds)
        except AwsRefused as refusal:
            if refusal.code in LAPSED:
                raise LeaseLost(queue=url, code=refusal.code) from refusal
            raise

    def release(self, url: str, receipt: str, delay: int = 0) -> bool:
        """Give the message back, for others to take after `delay` seconds. False: the lease had lapsed, others have it anyway."""
        try:
            self.extend(url, receipt, delay)
        except LeaseLost:
            return False
        return True

    def done(self, url: str, receipt: str) -> bool:
        """Delete the message. False: the lease had lapsed, so the message may come again; its result is found then."""
        try:
            with self._asking(url):
                self.aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
        except AwsRefused as refusal:
            if refusal.code in LAPSED:
                return False
            raise
        return True

    def done_all(self, url: str, receipts: Sequence[str]) -> None:
        """Delete messages, ten a call. One whose lease had lapsed may come again."""
        for start in range(0, len(receipts), BATCH):
            batch = receipts[start : start + BATCH]
            with self._asking(url):
                self.aws.sqs.delete_message_batch(
                    QueueUrl=url,
                    Entries=[{"Id": str(place), "ReceiptHandle": receipt} for place, receipt in enumerate(batch)],
                )

    def _send_batch(self, url: str, bodies: Sequence[str], delay: int) -> None:
        left: list[SendMessageBatchRequestEntryTypeDef] = [
            {"Id": str(place), "MessageBody": body, "DelaySeconds": delay} for place, body in enumerate(bodies)
        ]
        for attempt in range(1, SEND_TRIES + 1):
            send = partial(self.aws.sqs.send_message_batch, QueueUrl=url, Entries=left)
            failed = self._when_known(url, send).get("Failed", [])
            if not failed:
                return
            if attempt == SEND_TRIES or any(failure["SenderFault"] for failure in failed):
                break
            again = {failure["Id"] for failure in failed}
            left = [entry for entry in left if entry["Id"] in again]
            self._pause(0.2 * 2**attempt)
        untaken = [bodies[int(failure["Id"])] for failure in failed]
        raise PartlySent(
            untaken=untaken,
            service="sqs",
            operation="SendMessageBatch",
            code=failed[0]["Code"],
            target=url,
            why=f"{len(failed)} of {len(bodies)} messages not taken; {failed[0].get('Message', '')}",
        )

    def _attributes(self, url: str, *names: QueueAttributeNameType) -> dict[QueueAttributeNameType, str]:
        return self._when_known(url, lambda: self.aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names))[
            "Attributes"
        ]

    def _when_known(self, url: str, call: Callable[[], T]) -> T:
        """Ask, and again for as long as SQS may not know a queue that was made here a moment ago. QueueGone."""
        for _ in range(NEW_SECONDS):
            try:
                with self._asking(url):
                    return call()
            except QueueGone:
                if self._clock() - self._born.get(url, float("-inf")) >= NEW_SECONDS:
                    raise
            self._pause(1.0)
        with self._asking(url):
            return call()

    @contextmanager
    def _asking(self, url: str) -> Iterator[None]:
        try:
            with calling("sqs", url):
                yield
        except AwsRefused as refusal:
            if refusal.code in GONE:
                raise _as(QueueGone, refusal) from refusal
            raise


def _as(kind: type[AwsRefused], refusal: AwsRefused) -> AwsRefused:
    """The refusal as one of a class of its own."""
    return kind(
        service=refusal.service, operation=refusal.operation, code=refusal.code, target=refusal.target, why=refusal.why
    )


def _patience(code: str, *, names_another: bool) -> tuple[float, float]:
    """Seconds between tries of CreateQueue, and of all of them, by what it was refused with."""
    if code in DELETED_RECENTLY:
        return 5.0, NAME_SECONDS
    return 1.0, NEW_SECONDS if names_another and code in NO_TARGET else 0.0


def batches(bodies: Sequence[str]) -> Iterator[list[str]]:
    """The bodies in order, in batches that SQS takes: up to 10, up to 256 KiB. A larger body goes alone, for SQS to judge."""
    batch: list[str] = []
    size = 0
    for body in bodies:
        weight = len(body.encode())
        if batch and (len(batch) == BATCH or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += weight
    if batch:
        yield batch
