from __future__ import annotations

import signal
import time
from typing import Any, cast

import httpx
import pytest
from prefect.logging import disable_run_logger

from fleet.evals.progress import RunTally, snapshot
from flows.run import Run, deaf_to_sigterm


@pytest.mark.fault("end-without-prefect")
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


@pytest.mark.fault("no-answer")
def test_a_server_that_cannot_show_the_progress_ends_no_run() -> None:
    """An answer of 500, or a restart at the wrong moment, in the hours of a run."""

    class Away:
        def show(self, progress: object) -> None:
            raise httpx.ConnectError("no")

    run = Run.__new__(Run)
    run.artifacts = cast("Any", Away())
    run._told = time.monotonic()
    progress = snapshot(RunTally(evals={}), [], price=None, seconds=0.0)
    with disable_run_logger():
        run.show(progress)
    assert run.last is progress
