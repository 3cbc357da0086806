from __future__ import annotations

import signal
import time

from flows.run import deaf_to_sigterm


def test_a_clean_up_is_not_disturbed_and_what_reminds_of_the_end_goes_on_after_it() -> None:
    """A timer whose signal is ignored is never started anew."""
    heard: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(time.monotonic()))
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with deaf_to_sigterm():
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert heard == []
        until = time.monotonic() + 30
        while not heard and time.monotonic() < until:
            time.sleep(0.01)
        assert heard
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert signal.getsignal(signal.SIGTERM) is terminate
