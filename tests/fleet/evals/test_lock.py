"""One controller an eval."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from fleet.aws.objects import ObjectAbsent, Objects
from fleet.evals.layout import Layout
from fleet.evals.lock import HOLD_S, RENEW_S, SILENT_S, End, EvalLock, LockHeld, LockProcess, LockUnreadable


class FakeBucket:
    """Conditional puts as S3 has them: the ETag changes with each put."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[bytes, str]] = {}
        self.puts = 0

    def uri(self, key: str) -> str:
        return f"s3://b/{key}"

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


def a_lock(bucket: FakeBucket, run: str, process: LockProcess | None = None) -> EvalLock:
    objects: Objects = bucket  # type: ignore[assignment]
    return EvalLock(
        objects, Layout("p"), "eval-1", run=run, owner="alice", since="2026-01-01T00:00:00+00:00", process=process
    )


@pytest.fixture(scope="module")
def me() -> LockProcess:
    found = LockProcess.current()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def ended(me: LockProcess) -> LockProcess:
    """A process of this machine that is gone."""
    code = "from fleet.evals.lock import LockProcess as P; print(P.current().write())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    found = LockProcess.read(done.stdout)
    assert (found.boot, found.namespace) == (me.boot, me.namespace)
    return found


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
@pytest.mark.fault("second-controller", "controller-killed")
def test_the_eval_of_a_controller_that_was_killed_on_this_machine_is_taken_over_at_once(ended: LockProcess) -> None:
    bucket = FakeBucket()
    assert a_lock(bucket, "run-1", ended).take(now=1000) == ()
    assert a_lock(bucket, "run-2").take(now=1001) == ("run-1",)


@pytest.mark.fault("second-controller")
def test_a_process_that_lives_or_counts_elsewhere_keeps_its_eval(me: LockProcess, ended: LockProcess) -> None:
    """An id says nothing about another boot's process, nor about another container's."""
    elsewhere = [ended.model_copy(update=more) for more in ({"boot": "another"}, {"namespace": "pid:[1]"})]
    for process in (me, *elsewhere, None):
        bucket = FakeBucket()
        a_lock(bucket, "run-1", process).take(now=1000)
        with pytest.raises(LockHeld) as refusal:
            a_lock(bucket, "run-2").take(now=1001)
        assert (f"it is process {os.getpid()} of this machine" in str(refusal.value)) is (process is me)
        assert ("if it was killed, it holds the eval for 299 s more" in str(refusal.value)) is (process is not me)
        assert a_lock(bucket, "run-2").take(now=1000 + HOLD_S) == ("run-1",)


def test_an_id_that_went_to_another_process_keeps_no_eval(me: LockProcess) -> None:
    bucket = FakeBucket()
    a_lock(bucket, "run-1", me.model_copy(update={"started": "long ago"})).take(now=1000)
    assert a_lock(bucket, "run-2").take(now=1001) == ("run-1",)


@pytest.mark.fault("controller-killed")
def test_whom_a_dead_successor_had_still_to_end_is_the_next_ones_to_end(ended: LockProcess) -> None:
    bucket = FakeBucket()
    a_lock(bucket, "run-1", ended).take(now=0)
    second = a_lock(bucket, "run-2", ended)
    second.take(now=1)
    second.renew(now=2)
    third = a_lock(bucket, "run-3", ended)
    assert third.take(now=3) == ("run-2", "run-1")
    third.settled()
    third.renew(now=4)
    assert a_lock(bucket, "run-4").take(now=5) == ("run-3",)


def test_a_later_attempt_of_a_run_inherits_what_the_first_had_to_end(ended: LockProcess) -> None:
    bucket = FakeBucket()
    a_lock(bucket, "run-1", ended).take(now=0)
    a_lock(bucket, "run-2", ended).take(now=1)
    assert a_lock(bucket, "run-2", ended).take(now=2) == ("run-1",)
    assert a_lock(bucket, "run-1").take(now=3) == ("run-2",), "it doesn't end itself"


@pytest.mark.fault("second-controller")
@pytest.mark.parametrize("version", [0, 1, 9], ids=["older", "first", "newer"])
def test_a_lock_of_another_release_holds_until_it_expires(version: int) -> None:
    bucket = FakeBucket()
    content = {"version": version, "run": "run-1", "owner": "bob", "since": "noon", "expires": 1000 + HOLD_S}
    bucket.put_new("p/evals/eval-1/lock.json", json.dumps(content | {"later": 1} if version else content).encode())
    with pytest.raises(LockHeld, match=r"run-1 \(bob, since noon\)"):
        a_lock(bucket, "run-2").take(now=1000)
    assert a_lock(bucket, "run-2").take(now=1000 + HOLD_S) == ("run-1",)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 2, "run": "run-1"}'])
def test_a_lock_that_does_not_say_whose_it_is_is_left_alone(content: bytes) -> None:
    bucket = FakeBucket()
    bucket.put_new("p/evals/eval-1/lock.json", content)
    lock = a_lock(bucket, "run-2")
    with pytest.raises(LockUnreadable, match=r"s3://b/p/evals/eval-1/lock\.json doesn't say who") as refusal:
        lock.take(now=1000)
    assert "\n" not in str(refusal.value)
    with pytest.raises(LockUnreadable):
        lock.renew(now=1000)
    lock.release()
    assert [data for data, _ in bucket.stored.values()] == [content]


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
    one.renew(now=1)
    with pytest.raises(LockHeld):
        two.take(now=2)
    assert two.take(now=1 + HOLD_S) == ("run-1",)
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
    bucket.overtaker = lambda: lock.renew(now=1)
    lock.release()
    assert not bucket.stored


def test_a_renewal_that_ends_after_the_release_leaves_no_lock() -> None:
    """S3 kept it waiting for longer than anybody waits for it: at its look, or at the put of a lock that it had found gone."""
    bucket = Overtaken()
    lock = a_lock(bucket, "run-1")
    lock.take(now=0)
    bucket.overtaker = lock.release
    lock.renew(now=1)
    assert not bucket.stored

    lock = a_lock(bucket, "run-1")
    bucket.before_put = lock.release
    lock.renew(now=1)
    assert bucket.before_put is None
    assert not bucket.stored


class Overtaken(FakeBucket):
    """Lets another act between a read of the lock and what is made of it."""

    overtaker: Callable[[], object] | None = None
    before_put: Callable[[], object] | None = None

    def put_new(self, key: str, data: bytes) -> bool:
        act, self.before_put = self.before_put, None
        if act:
            act()
        return super().put_new(key, data)

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        seen = super().get_tagged(key)
        act, self.overtaker = self.overtaker, None
        if act:
            act()
        return seen
