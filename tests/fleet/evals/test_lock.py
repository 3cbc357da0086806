"""One controller an eval."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.aws.objects import ObjectAbsent, Objects
from fleet.evals.layout import Layout
from fleet.evals.lock import HOLD_S, RENEW_S, SILENT_S, End, EvalLock, LockHeld


class FakeBucket:
    """Conditional puts as S3 has them: the ETag changes with each put."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[bytes, str]] = {}
        self.puts = 0

    def _put(self, key: str, data: bytes) -> bool:
        self.puts += 1
        self.stored[key] = (data, f'"{self.puts}"')
        return True

    def put_new(self, key: str, data: bytes) -> bool:
        return key not in self.stored and self._put(key, data)

    def replace(self, key: str, data: bytes, etag: str) -> bool:
        return key in self.stored and self.stored[key][1] == etag and self._put(key, data)

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        if key not in self.stored:
            raise ObjectAbsent(uri=key)
        return self.stored[key]

    def delete_if(self, key: str, etag: str) -> bool:
        return self.stored.get(key, (b"", ""))[1] == etag and self.stored.pop(key) is not None


def a_lock(bucket: FakeBucket, run: str) -> EvalLock:
    objects: Objects = bucket  # type: ignore[assignment]
    return EvalLock(objects, Layout("p"), "eval-1", run=run, owner="alice", since="2026-01-01T00:00:00+00:00")


@pytest.mark.fault("second-controller")
def test_the_second_controller_is_told_who_holds_the_eval() -> None:
    bucket = FakeBucket()
    a_lock(bucket, "run-1").take(now=1000)
    with pytest.raises(LockHeld) as refusal:
        a_lock(bucket, "run-2").take(now=1000 + HOLD_S - 1)
    assert "run-1 (alice, since 2026-01-01T00:00:00+00:00)" in str(refusal.value)
    assert "if it was killed, it holds the eval for 1 s more" in str(refusal.value)


@pytest.mark.fault("second-controller")
def test_a_dead_controllers_eval_can_be_taken_over() -> None:
    bucket = FakeBucket()
    a_lock(bucket, "run-1").take(now=1000)
    a_lock(bucket, "run-2").take(now=1000 + HOLD_S)
    with pytest.raises(LockHeld):
        a_lock(bucket, "run-3").take(now=1000 + HOLD_S)


@pytest.mark.fault("second-controller")
def test_an_eval_whose_controller_has_said_that_it_ended_is_taken_over_at_once() -> None:
    bucket = FakeBucket()
    a_lock(bucket, "run-1").take(now=1000)
    with pytest.raises(LockHeld):
        a_lock(bucket, "run-2").take(1001, lambda run: End.REPORTED if run == "run-3" else End.UNKNOWN)
    a_lock(bucket, "run-2").take(1001, lambda run: End.REPORTED if run == "run-1" else End.UNKNOWN)
    with pytest.raises(LockHeld, match="run-2"):
        a_lock(bucket, "run-1").take(now=1002)


@pytest.mark.fault("second-controller")
def test_a_controller_that_others_call_over_keeps_its_eval_while_it_renews() -> None:
    """A Prefect server that was away hears of nobody meanwhile, and calls runs Crashed that live."""
    bucket = FakeBucket()
    alive, second = a_lock(bucket, "run-1"), a_lock(bucket, "run-2")
    for renewal in range(10):
        alive.take(now=renewal * RENEW_S)
        with pytest.raises(LockHeld):
            second.take((renewal + 1) * RENEW_S, lambda run: End.CALLED)
    with pytest.raises(LockHeld):
        second.take(9 * RENEW_S + SILENT_S, lambda run: End.CALLED)
    second.take(9 * RENEW_S + SILENT_S + 1, lambda run: End.CALLED)


def test_a_holder_renews_its_own() -> None:
    bucket = FakeBucket()
    lock = a_lock(bucket, "run-1")
    lock.take(now=0)
    lock.take(now=HOLD_S - 1)
    with pytest.raises(LockHeld):
        a_lock(bucket, "run-2").take(now=HOLD_S + 1)


def test_a_released_eval_is_free_and_anothers_lock_stays() -> None:
    bucket = FakeBucket()
    first, second = a_lock(bucket, "run-1"), a_lock(bucket, "run-2")
    first.take(now=0)
    second.release()
    assert bucket.stored
    first.release()
    assert not bucket.stored
    first.release()
    second.take(now=1)


@pytest.mark.fault("second-controller")
def test_of_two_that_take_over_at_once_one_wins() -> None:
    """Both read the expired lock; the conditional put lets one replace it."""
    bucket = Overtaken()
    a_lock(bucket, "run-1").take(now=0)
    bucket.overtaker = lambda: a_lock(bucket, "run-2").take(now=HOLD_S)
    with pytest.raises(LockHeld):
        a_lock(bucket, "run-3").take(now=HOLD_S)
    a_lock(bucket, "run-2").take(now=HOLD_S + 1)


class Forgetful(FakeBucket):
    """Does what it is asked, and its answer is lost on the way: the client's next try meets what the first one did."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    def put_new(self, key: str, data: bytes) -> bool:
        return super().put_new(key, data) and not self._lose()

    def replace(self, key: str, data: bytes, etag: str) -> bool:
        return super().replace(key, data, etag) and not self._lose()

    def delete_if(self, key: str, etag: str) -> bool:
        return super().delete_if(key, etag) and not self._lose()

    def _lose(self) -> bool:
        self.lost += 1
        return True


def test_what_was_done_although_its_answer_was_lost_is_done() -> None:
    """Not taken for somebody else's doing: of a new lock, a renewal, a take-over, a release."""
    bucket = Forgetful()
    one, two = a_lock(bucket, "run-1"), a_lock(bucket, "run-2")
    one.take(now=0)
    one.take(now=1)
    with pytest.raises(LockHeld):
        two.take(now=2)
    two.take(now=1 + HOLD_S)
    two.release()
    assert not bucket.stored
    assert bucket.lost >= 4


def test_a_lock_taken_over_just_now_is_not_released() -> None:
    """Between the look at it and the deletion, another run took it."""
    bucket = Overtaken()
    slow = a_lock(bucket, "run-1")
    slow.take(now=0)
    bucket.overtaker = lambda: a_lock(bucket, "run-2").take(now=HOLD_S)
    slow.release()
    with pytest.raises(LockHeld):
        a_lock(bucket, "run-3").take(now=HOLD_S + 1)


def test_a_renewal_at_the_moment_of_the_release_leaves_no_lock() -> None:
    bucket = Overtaken()
    lock = a_lock(bucket, "run-1")
    lock.take(now=0)
    bucket.overtaker = lambda: a_lock(bucket, "run-1").take(now=1)
    lock.release()
    assert not bucket.stored


class Overtaken(FakeBucket):
    """Lets another act between a read of the lock and what is made of it."""

    overtaker: Callable[[], None] | None = None

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        seen = super().get_tagged(key)
        act, self.overtaker = self.overtaker, None
        if act:
            act()
        return seen
