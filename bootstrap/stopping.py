"""SIGTERM while jobs run: what an instance is told that is about to be terminated.

Prefect raises its TerminationSignal wherever the main thread happens to be. A worker has jobs to give back first, so while
it works the signal sets an event instead; afterwards TerminationSignal is raised in one place, and Prefect sets the state
(Crashed) and ends the process as it always does. A second signal changes nothing: the first one is being obeyed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import anyio


@contextmanager
def stop_on_sigterm() -> Iterator[anyio.Event]:
    """An event that SIGTERM sets; TerminationSignal at the end of the block if it did. On the main thread's event loop only."""
    from prefect.exceptions import TerminationSignal

    stop = anyio.Event()
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGTERM)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGTERM)  # leaves the default behind, not what was there
        signal.signal(signal.SIGTERM, signal.SIG_IGN if stop.is_set() else before)
    if stop.is_set():
        raise TerminationSignal(signal=signal.SIGTERM)
