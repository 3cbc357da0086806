"""The last words of an instance."""

from __future__ import annotations

import pytest

from fleet.aws.session import Aws
from fleet.pool.boot_log import TAIL_LINES, tail


@pytest.fixture
def folder(aws: Aws, unique: str) -> str:
    aws.s3.create_bucket(Bucket=unique)
    return f"s3://{unique}/runs/1/instances"


def put(aws: Aws, folder: str, text: str) -> None:
    bucket, _, key = folder.removeprefix("s3://").partition("/")
    aws.s3.put_object(Bucket=bucket, Key=f"{key}/i-1/boot.log", Body=text.encode())


def test_a_short_log_is_whole(aws: Aws, folder: str) -> None:
    put(aws, folder, "one\ntwo\n")
    assert tail(aws, folder, "i-1") == "one\ntwo"


def test_a_long_log_ends_with_its_last_whole_lines(aws: Aws, folder: str) -> None:
    put(aws, folder, "".join(f"line {number} {'é' * 100}\n" for number in range(1000)))
    lines = (tail(aws, folder, "i-1") or "").splitlines()
    assert 1 < len(lines) <= TAIL_LINES
    assert lines[-1].startswith("line 999 ")
    assert all(line.startswith("line ") for line in lines)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_log_says_nothing(aws: Aws, folder: str, text: str) -> None:
    put(aws, folder, text)
    assert tail(aws, folder, "i-1") is None


def test_a_log_that_is_not_there_says_nothing(aws: Aws, folder: str) -> None:
    assert tail(aws, folder, "i-2") is None
    assert tail(aws, "s3://no-such-bucket-at-all/x", "i-1") is None
    assert tail(aws, None, "i-1") is None
