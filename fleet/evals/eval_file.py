"""Inspect's `.eval` files as what they are: zip archives with zstd and deflated members.

Small members are read here; large ones are copied from archive to archive as they lie, compressed, so that a merge
costs what a file copy costs. Inspect itself is not imported: it takes seconds, and nothing here depends on its models.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from fleet.errors import FleetError

ZSTD = 93
"""The zip method number of zstandard. Python's zipfile knows it from 3.14 on."""

START = "_journal/start.json"
HEADER = "header.json"
SUMMARIES = "summaries.json"
REDUCTIONS = "reductions.json"

BROKEN_ZIP = (zipfile.BadZipFile, EOFError, OverflowError, RuntimeError, ValueError, struct.error, zlib.error)
"""What `zipfile` raises for what is no zip, or a broken one, whose members are stored or deflated."""

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_CHUNK = 1 << 20


class EvalFileUnreadable(FleetError):
    """A file isn't a whole `.eval`: truncated, empty, or something else."""

    path: str
    why: str

    def message(self) -> str:
        """One line: which file, and what is wrong with it."""
        return f"{self.path} can't be read as an Inspect log: {self.why}"


def sample_member(sample_id: int | str, epoch: int) -> str:
    """The member that holds one sample, as Inspect names it."""
    return f"samples/{sample_id}_epoch_{epoch}.json"


class EvalFile:
    """An `.eval` file, open for reading. Where a name was written twice, the later member counts, as in Inspect.

    EvalFileUnreadable: it has no directory at its end, a member is missing or damaged. FileNotFoundError: no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        self._size = path.stat().st_size
        try:
            self._members = zipfile.ZipFile(self._file).NameToInfo
        except BROKEN_ZIP as error:
            self._file.close()
            why = "it is empty" if self._size == 0 else f"it is truncated or no zip ({error})"
            raise EvalFileUnreadable(path=str(path), why=why) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def info(self, name: str) -> zipfile.ZipInfo:
        """The directory entry of a member."""
        try:
            return self._members[name]
        except KeyError as error:
            raise self._damaged(f"it has no {name}") from error

    def read(self, name: str) -> bytes:
        """A member's content, inflated and checked against its checksum."""
        info = self.info(name)
        self.seek(name)
        raw = self._file.read(info.compress_size)
        try:
            content = _inflate(info.compress_type, raw)
        except (zlib.error, ValueError) as error:
            raise self._damaged(f"{name} is damaged ({error})") from error
        if zlib.crc32(content) != info.CRC:
            raise self._damaged(f"{name} is damaged (its checksum differs)")
        return content

    def seek(self, name: str) -> IO[bytes]:
        """The file, placed where the member's compressed bytes begin; its local header has been looked at."""
        info = self.info(name)
        if info.header_offset < 0:  # the directory lies in front of where it says it does
            raise self._damaged(f"{name} isn't where the directory says")
        self._file.seek(info.header_offset)
        head = self._file.read(_LOCAL_HEADER.size)
        if len(head) < _LOCAL_HEADER.size or head[:4] != b"PK\x03\x04":
            raise self._damaged(f"{name} isn't where the directory says")
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(head)
        if self._file.seek(name_length + extra_length, 1) + info.compress_size > self._size:
            raise self._damaged(f"{name} ends before its size")
        return self._file

    def _damaged(self, why: str) -> EvalFileUnreadable:
        return EvalFileUnreadable(path=str(self.path), why=why)


class EvalFileWriter:
    """An `.eval` file in the making. It is one only after `finish`."""

    def __init__(self, path: Path) -> None:
        # Deflate for what is written here: the standard library has it, and Inspect reads both.
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._stamp = (1980, 1, 1, 0, 0, 0)

    def copy(self, source: EvalFile, name: str) -> None:
        """Take a member over as it is: its compressed bytes, never inflated, never whole in memory."""
        old = source.info(name)
        if old.date_time != self._stamp:
            self._stamp = old.date_time  # of a hundred thousand entries most have the same, and one tuple does
        new = zipfile.ZipInfo(name, self._stamp)  # the caller's own text, which may be kept already
        new.compress_type, new.CRC = old.compress_type, old.CRC
        new.compress_size, new.file_size = old.compress_size, old.file_size
        new.external_attr, new.create_system = old.external_attr, old.create_system
        target = self._zip.fp
        if target is None:
            raise ValueError("the log is finished")
        target.seek(self._zip.start_dir)
        new.header_offset = target.tell()
        # The sizes are known, so the header says them and no data descriptor follows, whatever the source had.
        target.write(new.FileHeader(zip64=max(new.file_size, new.compress_size) > zipfile.ZIP64_LIMIT))
        reader, left = source.seek(name), old.compress_size
        while left:
            chunk = reader.read(min(left, _CHUNK))
            if not chunk:
                raise EOFError(f"{source.path} was cut while it was read")
            target.write(chunk)
            left -= len(chunk)
        self._zip.start_dir = target.tell()
        self._zip.filelist.append(new)
        self._zip.NameToInfo[new.filename] = new

    def open(self, name: str) -> IO[bytes]:
        """A new member to write to, of any size."""
        return self._zip.open(name, "w", force_zip64=True)

    def finish(self, order: Callable[[str], Any]) -> None:
        """Write the directory, its entries sorted by `order` of their names, and close the file."""
        self._zip.filelist.sort(key=lambda info: order(info.filename))
        self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._zip.close()


def _inflate(method: int, raw: bytes) -> bytes:
    """`raw` inflated. ValueError: damaged, or a method that Inspect doesn't use."""
    if method == zipfile.ZIP_STORED:
        return raw
    if method == zipfile.ZIP_DEFLATED:
        return zlib.decompress(raw, -zlib.MAX_WBITS)
    if method != ZSTD:
        raise ValueError(f"zip method {method}")
    import zstandard

    try:
        # Inspect writes large members as several frames.
        with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as reader:
            return reader.read()
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
