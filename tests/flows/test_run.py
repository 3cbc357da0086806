from __future__ import annotations

import os
import signal
import time
from typing import Any, cast

import httpx
import pytest
from prefect.logging import disable_run_logger

from fleet.evals.listener import Nobody, listener
from fleet.evals.lock import HOLD_S
from fleet.evals.lock_keeper import LockKeeper
from fleet.evals.progress import RunTally, snapshot
from flows import run as room
from flows.run import ONCE_MORE_S, Run, deaf_to_sigterm, undisturbed
from tests.fleet.evals.test_lock import FakeBucket, a_lock
from tests.fleet.reaper.kit import Account, Server, everything_of


@pytest.mark.fault("end-without-prefect")
def test_a_clean_up_is_not_disturbed_and_what_reminds_of_the_end_goes_on_after_it() -> None:
    """A timer whose signal is ignored is never started anew."""
    heard: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(time.monotonic()))
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with deaf_to_sigterm():
            heard.clear()
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


@pytest.mark.fault("end-without-prefect")
def test_ctrl_c_cuts_no_clean_up_short_unless_a_person_knows_what_it_leaves() -> None:
    now, said, reached = [0.0], list[str](), list[str]()

    def clean_up() -> None:
        with undisturbed(seconds=30, say=said.append, clock=lambda: now[0]):
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            reached.append("pressed some times at once")
            now[0] = ONCE_MORE_S
            signal.raise_signal(signal.SIGINT)
            reached.append("pressed once more")

    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    before, others = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(writing)
    try:
        with pytest.raises(KeyboardInterrupt):
            clean_up()
        with pytest.raises(BlockingIOError):  # who listens for the end of a run has heard nothing
            os.read(reading, 1)
    finally:
        listening = signal.set_wakeup_fd(others)
        os.close(reading)
        os.close(writing)
    assert reached == ["pressed some times at once"]
    assert [line.split(":")[0] for line in said] == ["still cleaning up, 30 s at most", "left as it is"]
    assert (signal.getsignal(signal.SIGINT), listening) == (before, writing)


@pytest.mark.fault("end-without-prefect")
def test_a_ctrl_c_that_repeats_as_the_clean_up_is_announced_skips_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pressing(Nobody):
        def warn(self, line: str) -> None:
            if line.startswith("interrupted"):
                signal.raise_signal(signal.SIGINT)

    def clean_up(*_: object, **how: object) -> list[str]:
        return ["cleaned up"]

    monkeypatch.setattr(room, "clean_up", clean_up)
    run = Run.__new__(Run)
    run.site = run.created = cast("Any", None)
    run.why, run.warm, run.locks = "", None, LockKeeper()
    token = listener.set(Pressing())
    try:
        with disable_run_logger(), pytest.raises(KeyboardInterrupt, match="first"), run:
            raise KeyboardInterrupt("first")
    finally:
        listener.reset(token)
    assert run.left == ["cleaned up"]


def test_what_costs_money_goes_before_a_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Waits:
        def close(self) -> None:
            steps.append("processes")

    def clean_up(*_: object, **how: object) -> list[str]:
        steps.append("instances, queues, locks")
        return []

    monkeypatch.setattr(room, "clean_up", clean_up)
    run = Run.__new__(Run)
    run.site = run.created = cast("Any", None)
    run.why, run.warm, run.locks = "", cast("Any", Waits()), LockKeeper()
    with disable_run_logger(), run:
        pass
    assert steps == ["instances, queues, locks", "processes"]


@pytest.mark.fault("no-answer")
def test_a_server_that_cannot_show_the_progress_ends_no_run() -> None:
    """An answer of 500, or a restart at the wrong moment, in the hours of a run."""

    class Away:
        def show(self, progress: object) -> None:
            raise httpx.ConnectError("no")

    run = Run.__new__(Run)
    run.artifacts = cast("Any", Away())
    run._told = time.monotonic()
    progress = snapshot(RunTally(evals={}), [], prices=(), seconds=0.0)
    with disable_run_logger():
        run.show(progress)
    assert run.last is progress


def a_successor(earlier: str) -> tuple[Run, FakeBucket]:
    """A run, `r9`, that has taken the eval over from another, and the bucket with the lock."""
    bucket = FakeBucket()
    a_lock(bucket, earlier).take(now=0)
    run = Run.__new__(Run)
    run.id, run.account, run.locks = "r9", "default", LockKeeper(now=lambda: HOLD_S)
    run.locks.take([a_lock(bucket, "r9")])
    return run, bucket


def next_one_inherits(run: Run, bucket: FakeBucket) -> tuple[str, ...]:
    run.locks.renew()
    return a_lock(bucket, "r10").take(now=3 * HOLD_S)


def test_a_run_ends_the_one_that_it_took_the_eval_over_from(monkeypatch: pytest.MonkeyPatch) -> None:
    account, server = Account.of(everything_of("r1", lock_in=None)), Server.with_states(r1="RUNNING")
    monkeypatch.setattr(room, "looked_at", lambda name, regions: account)
    monkeypatch.setattr(room, "PrefectRuns", lambda: server)
    run, bucket = a_successor("r1")
    with disable_run_logger():
        run.end_earlier()
    assert (account.things, server.ended) == ({}, ["r1"])
    assert next_one_inherits(run, bucket) == ("r9",)


def test_what_it_cannot_end_it_leaves_to_the_reaper_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(name: str, regions: list[str]) -> Account:
        raise httpx.ConnectError("no")

    monkeypatch.setattr(room, "looked_at", away)
    run, bucket = a_successor("r1")
    with disable_run_logger():
        run.end_earlier()
    assert next_one_inherits(run, bucket) == ("r9", "r1"), "whoever takes over from it tries again"
