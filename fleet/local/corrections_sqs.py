"""SQS: one lock, no work that grows with the queue's square, and what a receipt is worth after its time.

moto's queues are unlocked (duplicates; deleted messages come back), copy every message to read one attribute, and hold
stale receipts good. Standard queues are served here; FIFO queues by moto's own code, under the lock.
"""

# ruff: noqa: SLF001  (moto's internals are what is corrected here)

from __future__ import annotations

import contextlib
import copy
import functools
import secrets
from collections.abc import Callable
from threading import Condition, RLock, local
from typing import Any
from uuid import uuid4

from moto.core.utils import unix_time, unix_time_millis
from moto.sqs.exceptions import InvalidParameterValue, ReceiptHandleIsInvalid, SQSException
from moto.sqs.models import Message, Queue, SQSBackend, _filter_message_attributes

from fleet.local.corrections import replace

LOCK = RLock()
MOST_INVISIBLE_MS = 43_200_000
"""12 hours, from the receive."""
MOST_DELAY_SECONDS = 900
LOOK_AGAIN_SECONDS = 1.0
"""Longest sleep of a long poll between two looks: a lapsed lease or a passed delay wakes nobody."""

_here = local()
"""`alive` of the connection that this thread answers."""


class MessageNotInflight(SQSException):
    """The message is visible: its time has passed, or it was never received."""

    def __init__(self) -> None:
        super().__init__("AWS.SimpleQueueService.MessageNotInflight", "The specified message isn't in flight.")


def answering(alive: Callable[[], bool] | None) -> None:
    """Says how this thread learns that its client still listens (None: it always does)."""
    _here.alive = alive


def correct_sqs() -> None:
    """Put the corrections in place, once."""
    own = replace(
        SQSBackend,
        send_message=send_message,
        receive_message=receive_message,
        delete_message=delete_message,
        change_message_visibility=change_message_visibility,
        change_message_visibility_batch=change_message_visibility_batch,
        is_message_valid_based_on_retention_period=is_retained,
    )
    _moto_fifo.update(own)
    for name in (
        "create_queue",
        "delete_queue",
        "set_queue_attributes",
        "get_queue_attributes",
        "send_message_batch",
        "delete_message_batch",
        "purge_queue",
    ):
        replace(SQSBackend, **{name: _locked(getattr(SQSBackend, name))})
    replace(Queue, __init__=_with_receipts(Queue.__init__), add_message=_locked(Queue.add_message))


_moto_fifo: dict[str, Callable[..., Any]] = {}
"""moto's own functions, which serve FIFO queues."""


def _locked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def under_lock(*args: Any, **named: Any) -> Any:
        with LOCK:
            return function(*args, **named)

    return under_lock


def _with_receipts(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def with_receipts(self: Any, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        self._messages_lock = Condition(LOCK)  # a long poll waits on it, and lets the lock go while it waits
        self.receipts = {}

    return with_receipts


def send_message(
    self: Any,
    queue_name: str,
    message_body: str,
    message_attributes: dict[str, Any] | None = None,
    delay_seconds: int | None = None,
    deduplication_id: str | None = None,
    group_id: str | None = None,
    system_attributes: dict[str, Any] | None = None,
    **named: Any,
) -> Any:
    """As moto's, without counting the queue's messages for each one that is sent. Wakes a long poll."""
    with LOCK:
        queue: Any = self.get_queue(queue_name)
        if queue.fifo_queue:
            return _moto_fifo["send_message"](
                self,
                queue_name,
                message_body,
                message_attributes,
                delay_seconds,
                deduplication_id,
                group_id,
                system_attributes,
                **named,
            )
        delay = int(queue.delay_seconds if delay_seconds is None else delay_seconds)
        if not 0 <= delay <= MOST_DELAY_SECONDS:
            raise InvalidParameterValue(
                f"Value {delay} for parameter DelaySeconds is invalid. "
                f"Reason: DelaySeconds must be >= 0 and <= {MOST_DELAY_SECONDS}."
            )
        self._validate_message(queue, message_body, delay)
        message = Message(str(uuid4()), message_body, system_attributes)
        message.message_attributes = message_attributes or {}
        message.group_id = group_id
        message.mark_sent(delay_seconds=delay)
        queue.add_message(message)
        return message


def is_retained(self: Any, queue_name: str, message: Message) -> bool:
    """Whether a message is younger than the queue keeps messages: read, not counted anew for each message."""
    return _is_retained(self.get_queue(queue_name), message, unix_time_millis())


def _is_retained(queue: Any, message: Any, now: float) -> bool:
    return bool(message.sent_timestamp + queue.message_retention_period * 1000 > now)


def receive_message(
    self: Any,
    queue_name: str,
    count: int,
    wait_seconds_timeout: int,
    visibility_timeout: int,
    message_attribute_names: list[str] | None = None,
) -> list[Message]:
    """Up to `count` messages, hidden for `visibility_timeout` seconds; waits for the first one outside the lock.

    A message is delivered once at a time. To a client that has gone away nothing is delivered: AWS sees the closed
    connection, and a message would be hidden for a whole lease for nobody.
    """
    ends = unix_time() + wait_seconds_timeout
    names = message_attribute_names or []
    with LOCK:
        while True:
            queue: Any = self.get_queue(queue_name)
            alive = getattr(_here, "alive", None)
            if alive is not None and not alive():
                return []
            if queue.fifo_queue:
                fifo = _moto_fifo["receive_message"]
                taken: list[Message] = fifo(self, queue_name, count, 0, visibility_timeout, names)
            else:
                taken = _take(queue, count, visibility_timeout, names)
            left = ends - unix_time()
            if taken or left <= 0:
                return taken
            queue._messages_lock.wait(min(left, _until_next(queue), LOOK_AGAIN_SECONDS))


def _take(queue: Any, count: int, visibility_timeout: int, names: list[str]) -> list[Message]:
    now = unix_time_millis()
    taken: list[Message] = []
    gone: list[Any] = []
    for message in queue._messages:
        if message.visible_at > now or message.delayed_until > now:
            continue
        queue._pending_messages.discard(message)
        if not _is_retained(queue, message, now):
            gone.append(message)
            continue
        policy = queue.redrive_policy
        dead_letters = queue.dead_letter_queue if policy else None
        if dead_letters is not None and message.approximate_receive_count >= policy["maxReceiveCount"]:
            gone.append(message)
            dead_letters.add_message(message)
            continue
        _hand_out(queue, message, now, visibility_timeout)
        # A copy: which attributes are shown is a matter of this call.
        shown = copy.copy(message)
        _filter_message_attributes(shown, names)
        taken.append(shown)
        if len(taken) == count:
            break
    for message in gone:
        _drop(queue, message)
    return taken


def _hand_out(queue: Any, message: Any, now: float, visibility_timeout: int) -> None:
    message.approximate_receive_count += 1
    message.approximate_first_receive_timestamp = message.approximate_first_receive_timestamp or int(now)
    message.received_at = now
    message.visible_at = now + int(visibility_timeout) * 1000
    if message.receipt_handle:
        message._old_receipt_handles.append(message.receipt_handle)
    message.receipt_handle = secrets.token_urlsafe(64)
    queue.receipts[message.receipt_handle] = message
    queue._pending_messages.add(message)


def _drop(queue: Any, message: Any) -> None:
    with contextlib.suppress(ValueError):  # purged
        queue._messages.remove(message)
    queue._pending_messages.discard(message)
    for receipt in message.all_receipt_handles:
        queue.receipts.pop(receipt, None)
    queue.deleted_messages.update(receipt for receipt in message.all_receipt_handles if receipt)


def _until_next(queue: Any) -> float:
    """Seconds until the next message can be seen."""
    now = unix_time_millis()
    times = (max(message.visible_at, message.delayed_until) for message in queue._messages)
    return max(0.001, (min(times, default=now + 1e6) - now) / 1000)


def delete_message(self: Any, queue_name: str, receipt_handle: str) -> None:
    """The newest receipt deletes the message, also when its time has passed. An older one succeeds and deletes nothing.

    AWS: "If you don't provide the most recent receipt handle, the request succeeds, but the message might not be
    deleted." moto deletes it, from under the one who works on it now.
    """
    with LOCK:
        queue: Any = self.get_queue(queue_name)
        if queue.fifo_queue:
            _moto_fifo["delete_message"](self, queue_name, receipt_handle)
            return
        message = queue.receipts.get(receipt_handle)
        if message is not None:
            if message.receipt_handle == receipt_handle:
                _drop(queue, message)
        elif receipt_handle not in queue.deleted_messages:
            raise ReceiptHandleIsInvalid


def change_message_visibility(self: Any, queue_name: str, receipt_handle: str, visibility_timeout: int) -> None:
    """Hides a message that is in flight for so many seconds from now, at most 12 hours from its receive.

    AWS refuses what moto allows: a message whose time has passed is MessageNotInflight; one that was deleted or handed
    to somebody else since is InvalidParameterValue. moto counts the 12 hours from the send.
    """
    with LOCK:
        queue: Any = self.get_queue(queue_name)
        if queue.fifo_queue:
            _moto_fifo["change_message_visibility"](self, queue_name, receipt_handle, visibility_timeout)
            return
        message = queue.receipts.get(receipt_handle)
        now = unix_time_millis()
        if message is None and receipt_handle not in queue.deleted_messages:
            raise ReceiptHandleIsInvalid
        if message is None or message.receipt_handle != receipt_handle:
            raise InvalidParameterValue(
                f"Value {receipt_handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not "
                "available for visibility timeout change."
            )
        if message.visible_at <= now:
            raise MessageNotInflight
        until = now + int(visibility_timeout) * 1000
        if until - message.received_at > MOST_INVISIBLE_MS:
            raise InvalidParameterValue(
                f"Value {visibility_timeout} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout "
                "for the message is beyond the limit [43200 seconds]"
            )
        message.visible_at = until
        if int(visibility_timeout) == 0:
            queue._pending_messages.discard(message)
            queue._messages_lock.notify_all()


def change_message_visibility_batch(
    self: Any, queue_name: str, entries: list[dict[str, Any]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Each entry on its own: one that is refused is named with its code, the others hold (moto: all or none)."""
    done: list[str] = []
    refused: list[dict[str, Any]] = []
    for entry in entries:
        try:
            self.change_message_visibility(queue_name, entry["ReceiptHandle"], int(entry["VisibilityTimeout"]))
            done.append(entry["Id"])
        except SQSException as error:
            refused.append({"Id": entry["Id"], "SenderFault": True, "Code": error.code, "Message": str(error)})
    return done, refused
