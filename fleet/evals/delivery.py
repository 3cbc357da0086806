"""The merged log, put where the person asked for it."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

from fleet.aws.objects import Objects, bucket_and_key
from fleet.aws.session import Aws
from fleet.errors import RequestRefused


class LogDirRefused(RequestRefused):
    """The place for logs can't be used."""

    log_dir: str
    why: str

    def message(self) -> str:
        """One line."""
        return f"log_dir {self.log_dir!r} can't be used: {self.why}"


def check_log_dir(log_dir: str | None) -> None:
    """Refuse what `deliver` could not do, before anything runs. LogDirRefused."""
    if not log_dir:
        return
    parts = urlsplit(log_dir)
    if parts.scheme and parts.scheme != "s3":
        raise LogDirRefused(
            log_dir=log_dir, why=f"{parts.scheme}:// is not supported; give a folder or s3://bucket/prefix"
        )
    if parts.scheme == "s3":
        if not parts.netloc:
            raise LogDirRefused(log_dir=log_dir, why="it names no bucket")
        return
    folder = Path(log_dir)
    if folder.exists() and not folder.is_dir():
        raise LogDirRefused(log_dir=log_dir, why="it is a file")


def deliver(log: Path, log_dir: str) -> str:
    """Copy `log` into a folder or below an s3:// address; answers where it lies. A reader never sees half of it."""
    if urlsplit(log_dir).scheme == "s3":
        bucket, below = bucket_and_key(log_dir)
        key = "/".join(part for part in (below, log.name) if part)
        objects = _bucket(bucket)
        objects.put(key, log)
        return objects.uri(key)
    folder = Path(log_dir).expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / log.name
    aside = folder / f".{log.name}.part"
    shutil.copyfile(log, aside)
    aside.replace(target)
    return str(target)


def fetch(log: str, folder: Path) -> Path:
    """A log that lies at an s3:// address, as a file in `folder`."""
    bucket, key = bucket_and_key(log)
    path = folder / key.rsplit("/", 1)[-1]
    _bucket(bucket).download(key, path)
    return path


def _bucket(name: str) -> Objects:
    return Objects(Aws("us-east-1"), name)  # S3 itself says where the bucket lives
