"""The end of a run that is told to end while its Prefect server is away: seconds, where Prefect would take a minute.

On SIGTERM, as on Ctrl-C, Prefect leaves the flow by an exception, tells its server, and tries again and again where nobody answers.
Here the same exception is raised anew every few seconds, which cuts such a try short, in whatever flow it is; the run's own
clean-up isn't disturbed (`flows.run.undisturbed`). The process then ends as it always does, with the same exit code.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AGAIN_S = 4.0
"""Seconds that Prefect gets to tell its server of one flow's end."""
silent = threading.Event()
"""Set once the server was found not to answer: whatever Prefect still has for it when the process ends is not worth a wait."""
TOLD = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def short_farewell(say: Callable[[str], None]) -> Iterator[None]:
    """For the length of a block in the main thread: once the process was told to end, whatever delays that is cut short.

    `say` is told then what the server wasn't. Elsewhere than in the main thread nothing is done: signals don't come there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from prefect import runtime
    from prefect.exceptions import TerminationSignal

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    told: list[int] = []

    def listen() -> None:
        while data := os.read(reading, 64):
            if not told and (number := next((byte for byte in data if byte in TOLD), None)):
                told.append(number)
                signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        os.close(reading)

    def again(_number: int, _frame: object) -> None:
        if not silent.is_set():
            silent.set()
            run = f"flow run {found}" if (found := runtime.flow_run.id) else "the flow run"
            say(f"the Prefect server doesn't answer: {run} has ended, and is shown there as if it went on")
        raise KeyboardInterrupt if told[0] == signal.SIGINT else TerminationSignal(signal=signal.SIGTERM)

    before = signal.signal(signal.SIGALRM, again)
    # The kernel's signals as bytes, whatever handler Prefect has put in place by then.
    others = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=listen, name="farewell", daemon=True).start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.set_wakeup_fd(others)
        signal.signal(signal.SIGALRM, before)
        os.close(writing)
