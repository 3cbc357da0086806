"""Objects in one bucket: whole or not at all, and where asked, only the first one put under a key counts."""

from __future__ import annotations

import datetime
import hashlib
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from fleet.aws.failures import AwsRefused, Unreachable, calling
from fleet.aws.session import Aws
from fleet.errors import FleetError

ABSENT = frozenset({"404", "NoSuchKey"})
"""No such object. A missing bucket (NoSuchBucket) is none of these: that is a fault of the set-up."""
LOST_RACE = frozenset({"412", "PreconditionFailed"})
"""Another object was first."""
RACING = frozenset({"409", "ConditionalRequestConflict"})
"""Another write of this key is under way; S3 asks to try again."""

ONE_PUT_BYTES = 64 * 2**20
"""Larger files go up in parts, several at a time."""
CHUNK_BYTES = 2**20
ARTIFACT_FRESH = datetime.timedelta(days=30)
"""An artifact older than this is put again when it is used: the account's bucket lets artifacts expire after 90 days, and a run
must not lose its code on its way."""
TRIES = 4
"""Of a conditional call that races, or of a read that breaks off: botocore repeats neither."""


Content = bytes | Path | BinaryIO
"""What is put: bytes, or a file, by its path or open."""


class ObjectAbsent(FleetError):
    """No object lies under this key."""

    uri: str

    def message(self) -> str:
        """One line: the address."""
        return f"no object at {self.uri}"


def bucket_and_key(uri: str) -> tuple[str, str]:
    """The two parts of an `s3://bucket/key` address; of a folder's, the key without slashes around it. Either may be empty."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key.strip("/")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it."""

    key: str
    size: int
    """Bytes."""
    etag: str
    """Changes with the content; without quotes."""


class NamesArtifacts(Protocol):
    """What knows where an artifact lies: `fleet.evals.layout.Layout`, which stands above this room."""

    def artifact(self, sha256: str) -> str:
        """The key of the artifact with this digest."""
        ...


class Objects:
    """The objects of one bucket. Every method raises AwsRefused where S3 refuses or doesn't answer."""

    def __init__(
        self,
        aws: Aws,
        bucket: str,
        *,
        pause: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self.aws = aws
        self.bucket = bucket
        self._pause = pause
        self._now = now

    def uri(self, key: str) -> str:
        """The address of `key`, as S3's tools write it."""
        return f"s3://{self.bucket}/{key}"

    def put(self, key: str, data: Content) -> None:
        """Put `data`, or the content of the file `data`, in place of what lies there. Readers see the old or the new, whole."""
        if isinstance(data, Path) and data.stat().st_size > ONE_PUT_BYTES:
            with calling("s3", self.uri(key)), data.open("rb") as body:
                self.aws.s3.upload_fileobj(body, self.bucket, key)
        else:
            self._put_at_once(key, data, only_new=False)

    def put_new(self, key: str, data: Content) -> bool:
        """Put `data` (at most 5 GB) if nothing lies at `key`; False: another was first, and stays.

        False also where our own put landed, its answer was lost, and botocore's retry met it: who must know compares contents.
        """
        return self._conditionally(lambda: self._put_at_once(key, data, only_new=True), LOST_RACE)

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        """The content at `key` and its ETag, which `replace` takes. ObjectAbsent."""
        try:
            with calling("s3", self.uri(key)):
                answer = self.aws.s3.get_object(Bucket=self.bucket, Key=key)
                return answer["Body"].read(), answer["ETag"]
        except AwsRefused as refusal:
            if refusal.code in ABSENT:
                raise ObjectAbsent(uri=self.uri(key)) from refusal
            raise

    def replace(self, key: str, data: bytes, etag: str) -> bool:
        """Put `data` where the object with `etag` still lies; False: somebody replaced or deleted it in the meantime.

        False also where our own answer was lost, as with `put_new`.
        """

        def put() -> None:
            with calling("s3", self.uri(key)):
                self.aws.s3.put_object(Bucket=self.bucket, Key=key, Body=data, IfMatch=etag)

        return self._conditionally(put, LOST_RACE | ABSENT)

    def put_artifact(self, layout: NamesArtifacts, data: bytes | Path) -> str:
        """Put `data` under the name that its content gives it, unless it is there and won't expire soon; the SHA-256 in hex."""
        sha256 = _sha256(data)
        key = layout.artifact(sha256)
        since = self._put_at(key)  # most are there: the same source and settings run again and again
        if since is None:
            self.put_new(key, data)
        elif self._now() - since > ARTIFACT_FRESH:
            self.put(key, data)
        return sha256

    def get(self, key: str) -> bytes:
        """The content at `key`, in memory. ObjectAbsent: nothing lies there."""
        content = io.BytesIO()
        self._read(key, content)
        return content.getvalue()

    def get_end(self, key: str, count: int, etag: str) -> bytes | None:
        """The last `count` bytes at `key` (all, if there are fewer); None: what lies there isn't the object with `etag` any more.

        An empty object has no end: S3 refuses to be asked for it.
        """
        try:
            with calling("s3", self.uri(key)):
                answer = self.aws.s3.get_object(
                    Bucket=self.bucket, Key=key, Range=f"bytes=-{count}", IfMatch=f'"{etag}"'
                )
                return answer["Body"].read()
        except AwsRefused as refusal:
            if refusal.code in LOST_RACE | ABSENT:
                return None
            raise

    def download(self, key: str, to: Path) -> None:
        """The content at `key` as the file `to`, in one step: whole or not there. Folders are made. ObjectAbsent: no object."""
        to.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name}.")
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                self._read(key, file)
            part.replace(to)
        finally:
            part.unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """All objects whose keys begin with `prefix`, in key order, fetched a page (1,000) at a time."""
        # Only the fetching of a page is ours to translate: what the reader of the listing raises isn't AWS's.
        with calling("s3", self.uri(prefix)):
            pages = iter(self.aws.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix))
        while True:
            with calling("s3", self.uri(prefix)):
                page = next(pages, None)
            if page is None:
                return
            for found in page.get("Contents", []):
                yield StoredObject(key=found["Key"], size=found["Size"], etag=found["ETag"].strip('"'))

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The names of the folders right under `prefix` (which ends with a slash), whatever lies in them."""
        with calling("s3", self.uri(prefix)):
            pages = self.aws.s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, Delimiter="/"
            )
            return tuple(
                found["Prefix"].removeprefix(prefix).rstrip("/")
                for page in pages
                for found in page.get("CommonPrefixes", [])
            )

    def exists(self, key: str) -> bool:
        """Whether an object lies at `key`."""
        return self._put_at(key) is not None

    def delete_if(self, key: str, etag: str) -> bool:
        """Delete the object with `etag` if it still lies at `key`; False: nothing does, or what somebody put there since."""

        def delete() -> None:
            with calling("s3", self.uri(key)):
                self.aws.s3.delete_object(Bucket=self.bucket, Key=key, IfMatch=etag)

        return self._conditionally(delete, LOST_RACE | ABSENT)

    def copy(self, key: str, to: str, etag: str) -> bool:
        """Copy the object with `etag` (without quotes) from `key` to the key `to`, within S3 and of any size; False: it isn't at
        `key` any more."""

        def copy() -> None:
            with calling("s3", self.uri(key)):
                self.aws.s3.copy(
                    {"Bucket": self.bucket, "Key": key}, self.bucket, to, ExtraArgs={"CopySourceIfMatch": f'"{etag}"'}
                )

        return self._conditionally(copy, LOST_RACE | ABSENT)

    def _put_at(self, key: str) -> datetime.datetime | None:
        """When the object at `key` was put; None: nothing lies there."""
        try:
            with calling("s3", self.uri(key)):
                return self.aws.s3.head_object(Bucket=self.bucket, Key=key)["LastModified"]
        except AwsRefused as refusal:
            if refusal.code in ABSENT:
                return None
            raise

    def _conditionally(self, call: Callable[[], None], lost: frozenset[str]) -> bool:
        """Make a call with a condition, again while it races another; False: S3 said one of `lost`."""
        for attempt in range(1, TRIES + 1):
            try:
                call()
            except AwsRefused as refusal:
                if refusal.code in lost:
                    return False
                if refusal.code not in RACING or attempt == TRIES:
                    raise
                self._pause(0.2 * attempt)
            else:
                break
        return True

    def _put_at_once(self, key: str, data: Content, *, only_new: bool) -> None:
        with calling("s3", self.uri(key)), ExitStack() as opened:
            body = opened.enter_context(data.open("rb")) if isinstance(data, Path) else data
            if not isinstance(body, bytes):
                body.seek(0)  # a second try begins anew
            if only_new:
                self.aws.s3.put_object(Bucket=self.bucket, Key=key, Body=body, IfNoneMatch="*")
            else:
                self.aws.s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    def _read(self, key: str, into: BinaryIO) -> None:
        """Copy the content at `key` into `into`, from its start again where the stream breaks off."""
        for attempt in range(1, TRIES + 1):
            into.seek(0)
            into.truncate()
            try:
                with calling("s3", self.uri(key)):
                    body = self.aws.s3.get_object(Bucket=self.bucket, Key=key)["Body"]
                    into.writelines(body.iter_chunks(CHUNK_BYTES))
            except Unreachable:
                if attempt == TRIES:
                    raise
                self._pause(0.2 * attempt)
            except AwsRefused as refusal:
                if refusal.code in ABSENT:
                    raise ObjectAbsent(uri=self.uri(key)) from refusal
                raise
            else:
                return


def _sha256(data: bytes | Path) -> str:
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    with data.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
