from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import IncompleteReadError

from fleet.aws import objects as room
from fleet.aws.failures import AwsRefused, Denied, Unreachable
from fleet.aws.objects import TRIES, ObjectAbsent, Objects
from fleet.aws.session import Aws
from fleet.evals.layout import Layout
from tests.fleet.aws.conftest import fail

Kind = Callable[[Path, bytes], bytes | Path]


def remove(bucket: Objects, key: str) -> None:
    bucket.aws.s3.delete_object(Bucket=bucket.bucket, Key=key)


def as_bytes(_: Path, content: bytes) -> bytes:
    return content


def as_file(folder: Path, content: bytes) -> Path:
    file = folder / "content"
    file.write_bytes(content)
    return file


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def bucket(aws: Aws, unique: str, waits: list[float]) -> Objects:
    aws.s3.create_bucket(Bucket=unique)
    return Objects(aws, unique, pause=waits.append)


@pytest.mark.parametrize("kind", [as_bytes, as_file])
@pytest.mark.parametrize("content", [b"", b"log", bytes(range(256)) * 5000])
def test_what_was_put_comes_back(bucket: Objects, tmp_path: Path, kind: Kind, content: bytes) -> None:
    bucket.put("a/b", kind(tmp_path, content))
    assert bucket.get("a/b") == content
    bucket.download("a/b", tmp_path / "new" / "folder" / "file")
    assert (tmp_path / "new" / "folder" / "file").read_bytes() == content


def test_only_the_end_of_what_lies_there_is_read(bucket: Objects) -> None:
    bucket.put("log", b"0123456789")
    [stored] = bucket.list("log")
    assert bucket.get_end("log", 3, stored.etag) == b"789"
    assert bucket.get_end("log", 100, stored.etag) == b"0123456789"
    bucket.put("log", b"something else")
    assert bucket.get_end("log", 3, stored.etag) is None
    remove(bucket, "log")
    assert bucket.get_end("log", 3, stored.etag) is None


def test_a_large_file_goes_up_in_parts(bucket: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ONE_PUT_BYTES", 1024)
    content = b"0123456789abcdef" * 2**20  # 16 MiB: two of boto3's parts
    bucket.put("big", as_file(tmp_path, content))
    [stored] = bucket.list("big")
    assert stored.size == len(content)
    assert stored.etag.endswith("-2")
    assert bucket.get("big") == content


def test_put_replaces(bucket: Objects) -> None:
    bucket.put("k", b"old")
    bucket.put("k", b"new")
    assert bucket.get("k") == b"new"


@pytest.mark.parametrize("kind", [as_bytes, as_file])
@pytest.mark.fault("duplicate-delivery")
def test_the_first_of_two_wins_and_the_second_is_told(bucket: Objects, tmp_path: Path, kind: Kind) -> None:
    assert bucket.put_new("k", kind(tmp_path, b"first"))
    assert not bucket.put_new("k", kind(tmp_path, b"second"))
    assert bucket.get("k") == b"first"


def test_an_open_file_is_put_from_its_start_at_each_try(bucket: Objects, tmp_path: Path) -> None:
    with as_file(tmp_path, b"whole").open("rb") as file:
        fail(bucket.aws.s3, "PutObject", "ConditionalRequestConflict", status=409, times=1)
        file.seek(2)
        assert bucket.put_new("new", file)
        bucket.put("old", file)
    assert bucket.get("new") == bucket.get("old") == b"whole"


def test_a_put_that_races_is_tried_again(bucket: Objects, waits: list[float]) -> None:
    fail(bucket.aws.s3, "PutObject", "ConditionalRequestConflict", status=409, times=2)
    assert bucket.put_new("k", b"x")
    assert len(waits) == 2


def test_a_put_that_never_stops_racing_is_refused(bucket: Objects, waits: list[float]) -> None:
    fail(bucket.aws.s3, "PutObject", "ConditionalRequestConflict", status=409)
    with pytest.raises(AwsRefused, match="ConditionalRequestConflict"):
        bucket.put_new("k", b"x")
    assert len(waits) == TRIES - 1


def test_an_absent_object_has_an_error_of_its_own(bucket: Objects, tmp_path: Path) -> None:
    with pytest.raises(ObjectAbsent, match=f"s3://{bucket.bucket}/none"):
        bucket.get("none")
    with pytest.raises(ObjectAbsent):
        bucket.download("none", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    assert not bucket.exists("none")


def test_a_missing_bucket_is_not_an_absent_object(aws: Aws, unique: str) -> None:
    with pytest.raises(AwsRefused, match="NoSuchBucket"):
        Objects(aws, unique).get("k")


def test_a_denied_look_is_not_an_absence(bucket: Objects) -> None:
    fail(bucket.aws.s3, "HeadObject", "403", "Forbidden", status=403)
    with pytest.raises(Denied):
        bucket.exists("k")


def test_a_download_that_breaks_off_starts_again(
    bucket: Objects, tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.response import StreamingBody

    whole, breaks = StreamingBody.iter_chunks, iter([True, True, False])

    def chunks(body: StreamingBody, size: int) -> object:
        if next(breaks):
            yield b"half"
            raise IncompleteReadError(actual_bytes=4, expected_bytes=9)
        yield from whole(body, size)

    monkeypatch.setattr(StreamingBody, "iter_chunks", chunks)
    bucket.put("k", b"the whole")
    bucket.download("k", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"the whole"
    assert len(waits) == 2


def test_a_download_that_keeps_breaking_off_leaves_what_was_there(
    bucket: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.response import StreamingBody

    def chunks(body: StreamingBody, size: int) -> object:
        yield b"half"
        raise IncompleteReadError(actual_bytes=4, expected_bytes=9)

    monkeypatch.setattr(StreamingBody, "iter_chunks", chunks)
    (tmp_path / "file").write_bytes(b"old")
    bucket.put("k", b"the whole")
    with pytest.raises(Unreachable):
        bucket.download("k", tmp_path / "file")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]


def test_a_listing_has_every_page_in_order_and_nothing_else(bucket: Objects) -> None:
    bucket.aws.s3.meta.events.register(
        "provide-client-params.s3.ListObjectsV2", lambda params, **_: params | {"MaxKeys": 10}
    )
    for n in range(25):
        bucket.put(f"jobs/{n:04}", b"x" * (n % 3))
    bucket.put("jobs-of-another", b"")
    found = list(bucket.list("jobs/"))
    assert [stored.key for stored in found] == [f"jobs/{n:04}" for n in range(25)]
    assert [stored.size for stored in found[:4]] == [0, 1, 2, 0]
    assert all(stored.etag and '"' not in stored.etag for stored in found)


def test_an_object_is_replaced_only_while_it_is_the_one_that_was_read(bucket: Objects) -> None:
    bucket.put("lock", b"mine")
    content, etag = bucket.get_tagged("lock")
    assert content == b"mine"
    assert bucket.replace("lock", b"renewed", etag)
    assert not bucket.replace("lock", b"stale", etag)
    assert bucket.get("lock") == b"renewed"
    remove(bucket, "lock")
    assert not bucket.replace("lock", b"late", etag)
    with pytest.raises(ObjectAbsent):
        bucket.get_tagged("lock")


def test_a_replacement_that_races_is_tried_again(bucket: Objects, waits: list[float]) -> None:
    bucket.put("lock", b"mine")
    _, etag = bucket.get_tagged("lock")
    fail(bucket.aws.s3, "PutObject", "ConditionalRequestConflict", status=409, times=2)
    assert bucket.replace("lock", b"renewed", etag)
    assert len(waits) == 2
    fail(bucket.aws.s3, "PutObject", "ConditionalRequestConflict", status=409)
    with pytest.raises(AwsRefused, match="ConditionalRequestConflict"):
        bucket.replace("lock", b"late", bucket.get_tagged("lock")[1])


def test_an_object_is_deleted_only_while_it_is_the_one_that_was_read(bucket: Objects, waits: list[float]) -> None:
    bucket.put("lock", b"mine")
    _, etag = bucket.get_tagged("lock")
    bucket.put("lock", b"another's")
    assert not bucket.delete_if("lock", etag)
    assert bucket.get("lock") == b"another's"
    fail(bucket.aws.s3, "DeleteObject", "ConditionalRequestConflict", status=409, times=1)
    assert bucket.delete_if("lock", bucket.get_tagged("lock")[1])
    assert len(waits) == 1
    assert not bucket.delete_if("lock", etag), "nothing is there"


@pytest.mark.parametrize("size", [0, 16 * 2**20], ids=["empty", "in parts"])
def test_an_object_is_copied_only_while_it_is_the_one_that_was_seen(bucket: Objects, size: int) -> None:
    bucket.put("k", content := b"x" * size)
    (seen,) = bucket.list("k")
    assert bucket.copy("k", "kept", seen.etag)
    assert (bucket.get("kept"), bucket.get("k")) == (content, content)
    bucket.put("k", b"another")
    assert not bucket.copy("k", "other", seen.etag)
    remove(bucket, "k")
    assert not bucket.copy("k", "other", seen.etag)
    assert not bucket.exists("other")


@pytest.mark.parametrize("kind", [as_bytes, as_file])
def test_an_artifact_is_named_by_its_content_and_put_once(bucket: Objects, tmp_path: Path, kind: Kind) -> None:
    layout, puts = Layout("prefix"), []
    bucket.aws.s3.meta.events.register("before-call.s3.PutObject", lambda **_: puts.append(1))
    names = {bucket.put_artifact(layout, kind(tmp_path, b"source")) for _ in range(2)}
    assert names == {hashlib.sha256(b"source").hexdigest()}
    assert bucket.get(layout.artifact(names.pop())) == b"source"
    assert len(puts) == 1


@pytest.mark.parametrize(("days", "puts"), [(0, 1), (29, 1), (31, 2)])
def test_an_artifact_that_would_expire_under_a_run_is_put_again(
    aws: Aws, bucket: Objects, days: int, puts: int
) -> None:
    """The account's bucket lets artifacts expire 90 days after they were put."""
    counted: list[str] = []
    aws.s3.meta.events.register("before-call.s3.PutObject", lambda **_: counted.append("put"))
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    bucket.put_artifact(Layout("fleet"), b"source")
    Objects(aws, bucket.bucket, now=lambda: later).put_artifact(Layout("fleet"), b"source")
    assert len(counted) == puts
