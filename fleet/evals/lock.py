"""One controller an eval: a lock object in S3, taken by conditional put, held by a flow run, ended by its expiry or its
holder's end.

Two controllers of one eval would both deliver its log and delete each other's queues. The second is told who holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from fleet.aws.objects import ObjectAbsent, Objects
from fleet.errors import FleetError
from fleet.evals.documents import EvalId
from fleet.evals.layout import Layout
from fleet.wire import Wire

HOLD_S = 300.0
"""Seconds a lock holds without renewal: a controller that is away longer has lost its eval."""

TRIES = 4
"""Rounds in which somebody else may act between our look at the lock and what we make of it."""


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

    def take(self, now: float, is_over: Callable[[str], bool] = lambda run: False) -> None:
        """Hold the lock from `now` (seconds since the epoch) on, or longer. LockHeld: another run has it.

        `is_over` says of another holder's flow run whether it is known to have ended: its lock need not expire first.
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
            if left and (held.run == self._run or held.expires <= now or is_over(held.run)):
                if self._objects.replace(self._key, data, etag):
                    return
                refused = True
                continue
            raise LockHeld(eval_id=self._eval_id, run=held.run, owner=held.owner, since=held.since)

    def release(self) -> None:
        """Give the lock up, if it is still ours: what another run has put there by now stays."""
        for _ in range(TRIES):
            try:
                content, etag = self._objects.get_tagged(self._key)
            except ObjectAbsent:
                return
            if LockDocument.read(content).run != self._run or self._objects.delete_if(self._key, etag):
                return
