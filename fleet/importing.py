"""Importing what is large, which takes seconds.

An import makes hundreds of thousands of objects that stay, and the garbage collector walks all of them again and again.
Without it, importing Prefect takes a quarter less. And it may go on beside other work, for as long as that has use for it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def undisturbed() -> Iterator[None]:
    """Imports in this block aren't interrupted by garbage collection; what they made is not looked at again later."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Do `work`, which imports, in a thread of its own. What this answers waits until it is done.

    Whoever leaves the block without having waited has no use for it any more: it ends with the next module that it comes to.
    Either way nothing of it goes on after the block.
    """
    called_off = threading.Event()

    def run() -> None:
        with suppress(_CalledOff):
            work()

    thread = threading.Thread(target=run, name="import", daemon=True)  # a second interrupt waits for nothing
    stopper = _Stopper(thread, called_off)
    sys.meta_path.insert(0, stopper)
    thread.start()
    try:
        yield thread.join
    finally:
        called_off.set()
        thread.join()
        sys.meta_path.remove(stopper)


class _CalledOff(BaseException):
    """No Exception: a package that can do without another one would go on without it."""


class _Stopper:
    """Finds no module, and refuses those that a thread still looks for after it was called off."""

    def __init__(self, thread: threading.Thread, called_off: threading.Event) -> None:
        self._thread = thread
        self._called_off = called_off

    def find_spec(self, *_: object) -> None:
        if self._called_off.is_set() and threading.current_thread() is self._thread:
            raise _CalledOff
