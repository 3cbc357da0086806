"""What is kept of a log, in a folder in which the jobs' user does as they like. When it is kept: `test_delivery_partial.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest

from bootstrap.clockwork import real_clockwork
from bootstrap.partial import PartialLogs
from fleet.evals.documents import JobMessage
from tests.archives import zip_of
from tests.bootstrap.world import EVAL, LAYOUT

SECRET = b"root's own"


class Bucket:
    """Takes what is put, once the jobs' user has had a last moment to change things."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def put(self, _: str, data: BinaryIO) -> None:
        self.meanwhile()
        self.held.append(data.read())


def log(content: bytes = b"") -> bytes:
    return zip_of({"header.json": content})


def keep(folder: Path, bucket: Bucket, *, ending: bool = False) -> list[str]:
    said: list[str] = []

    async def main() -> None:
        logs = PartialLogs(bucket, LAYOUT, "i-0", real_clockwork(), said.append)
        await logs.keep(JobMessage(eval_id=EVAL, job="000000-00000000"), folder, ending=ending)

    anyio.run(main)
    return said


def a_link(job: Path, secret: Path) -> None:
    (job / "log" / "a.eval").symlink_to(secret)


def a_second_name(job: Path, secret: Path) -> None:
    (job / "log" / "a.eval").hardlink_to(secret)


def a_pipe(job: Path, _: Path) -> None:
    os.mkfifo(job / "log" / "a.eval")


def a_folder(job: Path, _: Path) -> None:
    (job / "log" / "a.eval").mkdir()


def a_link_for_the_folder(job: Path, secret: Path) -> None:
    (job / "log").rmdir()
    (job / "log").symlink_to(secret.parent)


def a_pipe_for_the_folder(job: Path, _: Path) -> None:
    (job / "log").rmdir()
    os.mkfifo(job / "log")


@pytest.mark.fault("planted-link")
@pytest.mark.parametrize(
    "plant", [a_link, a_second_name, a_pipe, a_folder, a_link_for_the_folder, a_pipe_for_the_folder]
)
def test_what_is_no_log_is_not_read_as_one(plant: Callable[[Path, Path], None], tmp_path: Path) -> None:
    secret, job, bucket = tmp_path / "root" / "secret.eval", tmp_path / "job", Bucket()
    (job / "log").mkdir(parents=True)
    secret.parent.mkdir()
    secret.write_bytes(SECRET)
    plant(job, secret)
    assert keep(job, bucket, ending=True) == []
    assert bucket.held == []


@pytest.mark.fault("planted-link")
def test_a_log_that_becomes_a_link_after_it_was_looked_at_is_read_as_it_was(tmp_path: Path) -> None:
    secret, bucket = tmp_path / "secret", Bucket()
    secret.write_bytes(SECRET)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a.eval").write_bytes(log())

    def swap() -> None:
        (tmp_path / "log" / "a.eval").unlink()
        (tmp_path / "log" / "a.eval").symlink_to(secret)

    bucket.meanwhile = swap
    assert len(keep(tmp_path, bucket)) == 1
    assert bucket.held == [log()]


def test_a_plain_log_beside_what_is_none_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a.eval").symlink_to("/etc/passwd")
    (tmp_path / "log" / "b.eval").write_bytes(log())
    bucket = Bucket()
    keep(tmp_path, bucket)
    assert bucket.held == [log()]


def test_a_bucket_that_hangs_is_waited_for_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bootstrap.partial.KEEP_SECONDS", 0.05)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a.eval").write_bytes(log())
    bucket, reading, writing = Bucket(), *os.pipe()
    bucket.meanwhile = lambda: os.read(reading, 1)
    try:
        [line] = keep(tmp_path, bucket)
    finally:
        os.close(writing)
    assert line.endswith("is not kept: that took more than 0.05 s")
