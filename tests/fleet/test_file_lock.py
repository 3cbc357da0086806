from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.file_lock import FileLocked, lock, locked


class Clock:
    """Time that passes only when somebody sleeps; `at` says what happens then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: tuple[float, Callable[[], object]] = (float("inf"), lambda: None)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.at[0]:
            self.at[1]()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A file that somebody has locked, by their descriptor."""
    path = tmp_path / "a.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield path, descriptor
    os.close(descriptor)


@pytest.fixture
def ours(held: tuple[Path, int]) -> Iterator[int]:
    descriptor = os.open(held[0], os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.fault("hang")
def test_a_holder_that_hangs_is_named_after_so_long(held: tuple[Path, int], ours: int, shared: bool) -> None:
    clock = Clock()
    with pytest.raises(FileLocked) as refused:
        lock(ours, held[0], seconds=90, shared=shared, clock=clock, sleep=clock.sleep)
    assert 90 <= clock.now < 91
    said = str(refused.value)
    assert str(held[0]) in said
    assert "more than 90 s: wait until its work is done, or end it" in said
    assert f"process {os.getpid()} " in said or "another process" in said  # not every file system has the number


def test_a_lock_that_is_let_go_of_meanwhile_is_had(held: tuple[Path, int], ours: int) -> None:
    path, theirs = held
    clock = Clock()
    clock.at = (30.0, lambda: fcntl.flock(theirs, fcntl.LOCK_UN))
    lock(ours, path, seconds=90, clock=clock, sleep=clock.sleep)
    assert 30 <= clock.now < 31
    with pytest.raises(BlockingIOError):
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_those_who_share_it_have_it_at_once(held: tuple[Path, int], ours: int) -> None:
    path, theirs = held
    fcntl.flock(theirs, fcntl.LOCK_SH)
    lock(ours, path, seconds=0, shared=True)
    with pytest.raises(FileLocked):
        lock(ours, path, seconds=0)


def test_a_lock_goes_with_its_block(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked(path, seconds=0), pytest.raises(FileLocked), locked(path, seconds=0):
        pass
    with locked(path, seconds=0):
        pass


@pytest.mark.fault("planted-link")
def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"), locked(tmp_path / "a.lock", seconds=0):
        pass
    assert not (tmp_path / "elsewhere").exists()
