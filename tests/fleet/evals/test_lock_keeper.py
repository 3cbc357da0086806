"""Locks stay held for as long as the run, whatever the run is busy with."""

from __future__ import annotations

import threading

import pytest

from fleet.aws.failures import AwsRefused
from fleet.aws.objects import ObjectAbsent
from fleet.evals.lock import HOLD_S, RENEW_S, End, LockHeld
from fleet.evals.lock_keeper import LockKeeper
from tests.fleet.evals.test_lock import FakeBucket, a_lock


@pytest.mark.fault("second-controller")
def test_two_renewals_may_fail() -> None:
    assert RENEW_S * 2 < HOLD_S


def test_a_thread_renews_while_the_run_is_busy_elsewhere() -> None:
    bucket, renewed = FakeBucket(), threading.Event()
    lock = a_lock(bucket, "run-1")

    def now() -> float:
        if bucket.puts >= 3:
            renewed.set()
        return 1000.0

    with LockKeeper(now=now, every=0.001) as keeper:
        keeper.take([lock])
        assert renewed.wait(10)
    puts = bucket.puts
    assert not keeper._thread.is_alive()
    assert bucket.puts == puts


@pytest.mark.fault("second-controller")
def test_a_lock_that_another_run_took_over_is_told() -> None:
    bucket = FakeBucket()
    keeper = LockKeeper(now=lambda: 1000.0)
    keeper.take([a_lock(bucket, "run-1")])
    a_lock(bucket, "run-2").take(now=1000.0 + HOLD_S)
    keeper.renew()
    assert keeper.lost is not None
    assert keeper.lost.run == "run-2"


@pytest.mark.fault("second-controller")
def test_a_renewal_does_not_take_an_eval_back() -> None:
    """Whoever took it over may have ended since: what it has delivered stays, and this run lets go."""
    bucket = FakeBucket()
    keeper = LockKeeper(now=lambda: 1000.0)
    keeper.take([a_lock(bucket, "run-1")], lambda run: End.REPORTED)
    a_lock(bucket, "run-2").take(now=1000.0 + HOLD_S)
    keeper.renew()
    assert keeper.lost is not None


def test_nor_does_it_take_back_what_the_successor_lets_expire() -> None:
    bucket, time = FakeBucket(), [1000.0]
    keeper = LockKeeper(now=lambda: time[0])
    keeper.take([a_lock(bucket, "run-1")])
    a_lock(bucket, "run-2").take(now=1000.0 + HOLD_S)
    time[0] += 3 * HOLD_S
    keeper.renew()
    assert keeper.lost is not None


def test_whose_things_are_to_be_ended_is_told_once_of_several_evals() -> None:
    first, second = FakeBucket(), FakeBucket()
    for bucket in (first, second):
        a_lock(bucket, "run-1").take(now=0)
    keeper = LockKeeper(now=lambda: 1000.0)
    keeper.take([a_lock(first, "run-2"), a_lock(second, "run-2")])
    assert keeper.earlier == ["run-1"]
    keeper.settled()
    keeper.renew()
    assert keeper.earlier == []
    assert a_lock(second, "run-3").take(now=1000.0 + HOLD_S) == ("run-2",)


def test_no_renewal_begins_once_the_block_has_ended() -> None:
    """It would take the locks again that the clean-up has released."""
    bucket = FakeBucket()
    with LockKeeper(now=lambda: 1000.0) as keeper:
        keeper.take([a_lock(bucket, "run-1")])
    keeper.renew()
    assert bucket.puts == 1


@pytest.mark.parametrize(
    "error",
    [
        AwsRefused(service="s3", operation="Put", code="Slow", target="", why=""),
        ObjectAbsent(uri="s3://b/lock.json"),
        RuntimeError("nobody thought of it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_renewal_that_fails_is_made_again(error: Exception) -> None:
    """Else the lock of a live run would expire, and the reaper take its things."""
    bucket = FakeBucket()
    keeper = LockKeeper(now=lambda: 1000.0)
    keeper.take([a_lock(bucket, "run-1")])
    replace, refusals = bucket.replace, [error]

    def moody(key: str, data: bytes, etag: str) -> bool:
        if refusals:
            raise refusals.pop()
        return replace(key, data, etag)

    bucket.replace = moody  # type: ignore[method-assign]
    keeper.renew()
    keeper.renew()
    assert keeper.lost is None
    assert bucket.puts == 2


@pytest.mark.fault("second-controller")
def test_an_eval_that_is_held_is_refused_at_once() -> None:
    bucket = FakeBucket()
    a_lock(bucket, "run-1").take(now=1000.0)
    with pytest.raises(LockHeld):
        LockKeeper(now=lambda: 1000.0).take([a_lock(bucket, "run-2")])
