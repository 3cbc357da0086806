"""Keeps a run's locks alive from a thread of its own: launching, waiting and merging may each take longer than a lock holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from fleet.evals.lock import RENEW_S, End, EvalLock, LockHeld

JOIN_S = 10.0
"""Seconds that a renewal on its way has to end in, once the block has."""


class LockKeeper:
    """Takes locks, and renews them until the block ends; their release comes after that, last of a clean-up.

    What it holds at any moment is `locks`.
    """

    def __init__(self, *, now: Callable[[], float] = time.time, every: float = RENEW_S) -> None:
        self.locks: list[EvalLock] = []
        self.earlier: list[str] = []
        """Runs that locks were taken over from, and that may have left things."""
        self.lost: LockHeld | None = None
        """Set when another controller has taken an eval over: this one must let go of it."""
        self._now = now
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="locks", daemon=True)

    def take(self, locks: Iterable[EvalLock], end_of: Callable[[str], End] = lambda run: End.UNKNOWN) -> None:
        """Hold these as well. LockHeld: one of them is another run's; those taken before stay held.

        `end_of`: as for `EvalLock.take`. A renewal doesn't ask: who has taken an eval over keeps it.
        """
        for lock in locks:
            earlier = lock.take(self._now(), end_of)
            self.locks.append(lock)
            self.earlier += [run for run in earlier if run not in self.earlier]

    def settled(self) -> None:
        """Nothing is left of the `earlier` runs."""
        self.earlier.clear()
        for lock in self.locks:
            lock.settled()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        # One that S3 keeps waiting for longer finds its lock released, and leaves none.
        self._thread.join(timeout=JOIN_S)

    def _renew(self) -> None:
        while not self._over.wait(self._every):
            self.renew()

    def renew(self) -> None:
        """One renewal of all. What goes wrong waits for the next one, whatever it is: a lock outlives two, and a thread that ended
        here would leave a live run's things to the reaper."""
        for lock in list(self.locks):
            if self._over.is_set():
                return
            try:
                lock.renew(self._now())
            except LockHeld as held:
                self.lost = held
            except Exception:  # noqa: BLE001, S112
                continue
