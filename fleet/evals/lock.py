"""One controller an eval: a lock object in S3, taken by conditional put, held by a flow run, ended by its expiry or its
holder's end.

A holder that was killed can't say so. Its lock names its process, so that the next controller on the same machine sees that it is
gone; elsewhere it waits for the expiry. What such a holder has left is its successor's to end: `take` answers whose that is.

Two controllers of one eval would both deliver its log and delete each other's queues. The second is told who holds it.
"""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self, cast

from fleet import processes
from fleet.aws.objects import ObjectAbsent, Objects
from fleet.errors import FleetError
from fleet.evals.documents import EvalId
from fleet.evals.layout import Layout
from fleet.processes import Process, Space
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
    pid: int | None
    """Its process, where that is on this machine and not known to be gone."""

    def message(self) -> str:
        """One line: who holds it and since when, and what to do."""
        end = (
            f"if it was killed, it holds the eval for {self.seconds} s more"
            if self.pid is None
            else f"it is process {self.pid} of this machine: once that has ended, the same request goes on at once"
        )
        return (
            f"eval {self.eval_id} is being run by flow run {self.run} ({self.owner}, since {self.since}): "
            f"wait for it, cancel it, or start over beside it with new_fleet=true; {end}"
        )


class LockUnreadable(FleetError):
    """A lock lies there that doesn't say whose it is."""

    eval_id: str
    uri: str
    why: str

    def message(self) -> str:
        """One line: where it lies, and what to do."""
        return (
            f"somebody may be running eval {self.eval_id}, and its lock {self.uri} doesn't say who ({self.why}): "
            "upgrade this side, or delete that object if nobody is"
        )


class End(enum.Enum):
    """What is known of the end of a flow run that holds a lock."""

    UNKNOWN = "unknown"
    """It goes on, or nobody here knows it."""
    REPORTED = "reported"
    """It said so itself, once its clean-up was done."""
    CALLED = "called"
    """Others say so. They may have seen its process die, or only not have heard of it while Prefect's server was away."""


class LockProcess(Wire):
    """The process that holds a lock, and what its numbers count in."""

    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Self | None:
        """This process; None: the kernel doesn't tell who it is."""
        space, me = processes.space(), processes.process(os.getpid())
        if space is None or me is None:
            return None
        return cls(boot=space.boot, namespace=space.namespace, pid=me.pid, started=me.started)

    def is_here(self) -> bool:
        """Whether its numbers mean something to this process."""
        return processes.space() == Space(self.boot, self.namespace)

    def has_ended(self) -> bool:
        """Whether it is seen to be gone. False where that can't be seen."""
        return self.is_here() and processes.has_ended(Process(self.pid, self.started))


class LockDocument(Wire):
    """What lies at `lock.json`."""

    VERSION: ClassVar[int | None] = 2
    READS_TOO: ClassVar[frozenset[int]] = frozenset({1})

    version: Literal[2] = 2
    run: str
    owner: str
    since: str
    expires: float
    """Seconds since the epoch."""
    process: LockProcess | None = None
    earlier: tuple[str, ...] = ()
    """Runs that it was taken over from, of which something may be left: a holder may die before it has ended them."""

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
    """The lock of one eval for one run. Not for use by two threads at once, but for a renewal beside the release."""

    def __init__(
        self,
        objects: Objects,
        layout: Layout,
        eval_id: EvalId,
        *,
        run: str,
        owner: str,
        since: str,
        process: LockProcess | None = None,
    ) -> None:
        self._objects = objects
        self._key = layout.lock(eval_id)
        self._eval_id = eval_id
        self._run, self._owner, self._since, self._process = run, owner, since, process
        self._earlier: tuple[str, ...] = ()
        self._released = False

    def take(self, now: float, end_of: Callable[[str], End] = lambda run: End.UNKNOWN) -> tuple[str, ...]:
        """Hold the lock from `now` (seconds since the epoch) on. LockHeld: another run has it; LockUnreadable.

        `end_of` says what is known of the end of another holder's flow run: the lock of one that has ended need not expire first.
        Answers the runs that held it and didn't release it. What is left of them is to be ended by this run, the lock says so
        until `settled`.
        """
        tried: LockDocument | None = None
        for left in reversed(range(TRIES)):
            if self._objects.put_new(self._key, self._document(now).write().encode()):
                return ()
            try:
                held, etag = self._read()
            except ObjectAbsent:  # released between the two calls: whoever is first now has it
                if not left:
                    raise
                continue
            if held == tried:  # it was ours, and the answer that said so was lost
                break
            own = held.run == self._run
            if not left or not (own or is_free(held, now, end_of)):
                raise self._held(held, now)
            earlier = held.earlier if own else (held.run, *held.earlier)
            tried = self._document(now, tuple(run for run in earlier if run != self._run))
            if self._objects.replace(self._key, tried.write().encode(), etag):
                break
        self._earlier = tried.earlier if tried else ()
        return self._earlier

    def settled(self) -> None:
        """Nothing is left of those that it was taken over from: the next renewal leaves them out."""
        self._earlier = ()

    def renew(self, now: float) -> None:
        """Hold it for longer. LockHeld: another run has taken it over, and keeps it, even if it is dead by now; LockUnreadable.

        One that ends after the release takes back what it did.
        """
        try:
            fresh = self._document(now, self._earlier)
            for _ in range(TRIES):
                if self._released or self._put(fresh, now):
                    return
        finally:
            if self._released:
                self._delete()

    def _put(self, fresh: LockDocument, now: float) -> bool:
        """Put it where our own lies, or none; False: something else was done there meanwhile, or the answer was lost."""
        try:
            held, etag = self._read()
        except ObjectAbsent:
            return self._objects.put_new(self._key, fresh.write().encode())
        if held.run != self._run:
            raise self._held(held, now)
        return self._objects.replace(self._key, fresh.write().encode(), etag)

    def release(self) -> None:
        """Give the lock up, if it is still ours: what another run has put there by now stays."""
        self._released = True
        self._delete()

    def _delete(self) -> None:
        for _ in range(TRIES):
            try:
                held, etag = self._read()
            except (ObjectAbsent, LockUnreadable):
                return
            if held.run != self._run or self._objects.delete_if(self._key, etag):
                return

    def _document(self, now: float, earlier: tuple[str, ...] = ()) -> LockDocument:
        return LockDocument(
            run=self._run,
            owner=self._owner,
            since=self._since,
            expires=now + HOLD_S,
            process=self._process,
            earlier=earlier,
        )

    def _read(self) -> tuple[LockDocument, str]:
        """The lock as it lies there, with its ETag. ObjectAbsent, LockUnreadable."""
        content, etag = self._objects.get_tagged(self._key)
        try:
            return LockDocument.of_any_release(content), etag
        except DocumentRefused as refused:
            raise LockUnreadable(eval_id=self._eval_id, uri=self._objects.uri(self._key), why=refused.why) from refused

    def _held(self, held: LockDocument, now: float) -> LockHeld:
        here = held.process is not None and held.process.is_here() and not held.process.has_ended()
        return LockHeld(
            eval_id=self._eval_id,
            run=held.run,
            owner=held.owner,
            since=held.since,
            seconds=max(0, round(held.expires - now)),
            pid=held.process.pid if here and held.process else None,
        )


def is_free(held: LockDocument, now: float, end_of: Callable[[str], End]) -> bool:
    """Whether nobody answers for another run's lock any more."""
    if held.expires <= now or (held.process is not None and held.process.has_ended()):
        return True
    match end_of(held.run):
        case End.REPORTED:
            return True
        case End.CALLED:
            return now - (held.expires - HOLD_S) > SILENT_S
        case End.UNKNOWN:
            return False
