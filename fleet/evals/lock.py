"""One controller an eval: a lock object in S3, taken by conditional put, held by a flow run, ended by its expiry.

Two controllers of one eval would both deliver its log and delete each other's queues. The second is told who holds it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from fleet.aws.objects import ObjectAbsent, Objects
from fleet.errors import FleetError
from fleet.evals.documents import EvalId
from fleet.evals.layout import Layout
from fleet.wire import Wire

HOLD_S = 300.0
"""Seconds a lock holds without renewal: a controller that is away longer has lost its eval."""


class LockHeld(FleetError):
    """Another controller works this eval."""

    eval_id: str
    run: str
    owner: str
    since: str

    def message(self) -> str:
        """One line: who holds it and since when, and what to do."""
        return (
            f"eval {self.eval_id} is being run by flow run {self.run} ({self.owner}, since {self.since}): "
            "wait for it, cancel it, or start over beside it with new_fleet=true"
        )


class LockDocument(Wire):
    """What lies at `lock.json`."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    run: str
    owner: str
    since: str
    expires: float
    """Seconds since the epoch."""


class EvalLock:
    """The lock of one eval for one run. Not for use by two threads at once."""

    def __init__(self, objects: Objects, layout: Layout, eval_id: EvalId, *, run: str, owner: str, since: str) -> None:
        self._objects = objects
        self._key = layout.lock(eval_id)
        self._eval_id = eval_id
        self._run, self._owner, self._since = run, owner, since

    def take(self, now: float) -> None:
        """Hold the lock from `now` (seconds since the epoch) on, or longer. LockHeld: another run has it."""
        mine = self._document(now)
        if self._objects.put_new(self._key, mine):
            return
        try:
            held, etag = self._objects.get_tagged(self._key)
        except ObjectAbsent:
            # Released between the two calls: whoever is first now has it.
            if self._objects.put_new(self._key, mine):
                return
            held, etag = self._objects.get_tagged(self._key)
        other = LockDocument.read(held)
        free = other.run == self._run or other.expires <= now
        if not (free and self._objects.replace(self._key, mine, etag)):
            raise LockHeld(eval_id=self._eval_id, run=other.run, owner=other.owner, since=other.since)

    def release(self) -> None:
        """Give the lock up, if it is still ours."""
        try:
            held, _ = self._objects.get_tagged(self._key)
        except ObjectAbsent:
            return
        if LockDocument.read(held).run == self._run:
            self._objects.delete(self._key)

    def _document(self, now: float) -> bytes:
        return LockDocument(run=self._run, owner=self._owner, since=self._since, expires=now + HOLD_S).write().encode()
