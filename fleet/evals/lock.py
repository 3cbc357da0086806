"""One controller an eval: a lock object in S3, taken by conditional put, held by a flow run, ended by its expiry or its
holder's end.

Two controllers of one eval would both deliver its log and delete each other's queues. The second is told who holds it.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self, cast

from fleet.aws.objects import ObjectAbsent, Objects
from fleet.errors import FleetError
from fleet.evals.documents import EvalId
from fleet.evals.layout import Layout
from fleet.wire import DocumentRefused, Wire

HOLD_S = 300.0
"""Seconds a lock holds without renewal: a controller that is away longer has lost its eval."""
RENEW_S = HOLD_S / 3
"""Two renewals in a row may fail before another controller can take over."""
SILENT_S = 2 * RENEW_S
"""Seconds without a renewal that make others' word believed that the holder has ended."""

TRIES = 4
"""Rounds in which somebody else may act between our look at the lock and what we make of it."""


class LockHeld(FleetError):
    """Another controller works this eval."""

    eval_id: str
    run: str
    owner: str
    since: str
    seconds: int
    """Until the lock expires, where nobody renews it."""

    def message(self) -> str:
        """One line: who holds it and since when, and what to do."""
        return (
            f"eval {self.eval_id} is being run by flow run {self.run} ({self.owner}, since {self.since}): "
            "wait for it, cancel it, or start over beside it with new_fleet=true; "
            f"if it was killed, it holds the eval for {self.seconds} s more"
        )


class End(enum.Enum):
    """What is known of the end of a flow run that holds a lock."""

    UNKNOWN = "unknown"
    """It goes on, or nobody here knows it."""
    REPORTED = "reported"
    """It said so itself, once its clean-up was done."""
    CALLED = "called"
    """Others say so. They may have seen its process die, or only not have heard of it while Prefect's server was away."""


class LockDocument(Wire):
    """What lies at `lock.json`."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    run: str
    owner: str
    since: str
    expires: float
    """Seconds since the epoch."""

    @classmethod
    def of_any_release(cls, content: bytes) -> Self:
        """The lock in `content`, of another release too: every one has said whose it is and until when.

        DocumentRefused: it doesn't say that. Then somebody may hold it all the same.
        """
        try:
            return cls.read(content)
        except DocumentRefused:
            raw = _object_in(content)
            run, owner, since, expires = (raw.get(name) for name in ("run", "owner", "since", "expires"))
            number = isinstance(expires, int | float) and not isinstance(expires, bool) and math.isfinite(expires)
            if not isinstance(run, str) or not run or not number:
                raise
            said = [one if isinstance(one, str) and one else "unknown" for one in (owner, since)]
            return cls(run=run, owner=said[0], since=said[1], expires=cast("float", expires))


def _object_in(content: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(content)
    except ValueError:
        return {}
    return raw if isinstance(raw, dict) else {}


class EvalLock:
    """The lock of one eval for one run. Not for use by two threads at once."""

    def __init__(self, objects: Objects, layout: Layout, eval_id: EvalId, *, run: str, owner: str, since: str) -> None:
        self._objects = objects
        self._key = layout.lock(eval_id)
        self._eval_id = eval_id
        self._run, self._owner, self._since = run, owner, since

    def take(self, now: float, end_of: Callable[[str], End] = lambda run: End.UNKNOWN) -> None:
        """Hold the lock from `now` (seconds since the epoch) on, or longer. LockHeld: another run has it.

        `end_of` says what is known of the end of another holder's flow run: the lock of one that has ended need not expire first.
        """
        mine = LockDocument(run=self._run, owner=self._owner, since=self._since, expires=now + HOLD_S)
        data = mine.write().encode()
        refused = False
        for left in reversed(range(TRIES)):
            if self._objects.put_new(self._key, data):
                return
            try:
                content, etag = self._objects.get_tagged(self._key)
            except ObjectAbsent:  # released between the two calls: whoever is first now has it
                if not left:
                    raise
                continue
            held = LockDocument.read(content)
            if refused and held == mine:  # it was ours, and the answer that said so was lost
                return
            if left and (held.run == self._run or is_free(held, now, end_of)):
                if self._objects.replace(self._key, data, etag):
                    return
                refused = True
                continue
            seconds = max(0, round(held.expires - now))
            raise LockHeld(eval_id=self._eval_id, run=held.run, owner=held.owner, since=held.since, seconds=seconds)

    def release(self) -> None:
        """Give the lock up, if it is still ours: what another run has put there by now stays."""
        for _ in range(TRIES):
            try:
                content, etag = self._objects.get_tagged(self._key)
            except ObjectAbsent:
                return
            if LockDocument.read(content).run != self._run or self._objects.delete_if(self._key, etag):
                return


def is_free(held: LockDocument, now: float, end_of: Callable[[str], End]) -> bool:
    """Whether nobody answers for another run's lock any more."""
    if held.expires <= now:
        return True
    match end_of(held.run):
        case End.REPORTED:
            return True
        case End.CALLED:
            return now - (held.expires - HOLD_S) > SILENT_S
        case End.UNKNOWN:
            return False
