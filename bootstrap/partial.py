"""What there was of a job's log when its attempt ended without a result: kept for a person, and never a result.

The job has gone back to the queue by then, and nothing waits for this but the worker's end: so it is bounded in time and size.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol

import anyio

from bootstrap.clockwork import Clockwork
from bootstrap.private_files import folder_below, open_to_read
from fleet.aws.failures import AwsRefused
from fleet.evals.documents import JobMessage
from fleet.evals.eval_file import BROKEN_ZIP, HEADER
from fleet.evals.layout import Layout

ENDING_SECONDS = 8.0
"""How long a runner that was told to end is waited for: Inspect writes the samples that are done as it unwinds."""
LOOK_SECONDS = 0.25
KEEP_SECONDS = 60.0
"""For all of it: an instance that is told to end has little more."""
MOST_BYTES = 64 * 2**20
"""A larger log is left where it is, and goes with the instance."""


class PutsObjects(Protocol):
    """What is needed of `fleet.aws.objects.Objects`."""

    def put(self, key: str, data: BinaryIO) -> None:
        """Put in place of what lies there."""
        ...


@dataclass(frozen=True, slots=True)
class PartialLogs:
    """Where one worker's partial logs go."""

    objects: PutsObjects
    layout: Layout
    instance: str
    clockwork: Clockwork
    say: Callable[[str], None]

    async def keep(self, job: JobMessage, folder: Path, *, ending: bool = False) -> None:
        """Put what Inspect has written of a job's log in `folder`; also while all else is being cancelled.

        `ending`: its runner was told to end and may still write. Nothing written, too much or unreadable, or AWS refusing: then
        nothing is kept.
        """
        with anyio.move_on_after(KEEP_SECONDS, shield=True) as in_time:
            until = self.clockwork.now() + ENDING_SECONDS
            try:
                while ending and await self.clockwork.in_thread(_is_open, folder) and self.clockwork.now() < until:
                    await self.clockwork.sleep(LOOK_SECONDS)
                await self.clockwork.in_thread(self._put, job, folder)
            except (AwsRefused, OSError) as error:  # its disk may be what the attempt ended for
                self.say(f"the partial log of job {job.job} is not kept: {error}")
        if in_time.cancelled_caught:
            self.say(f"the partial log of job {job.job} is not kept: that took more than {KEEP_SECONDS:g} s")

    def _put(self, job: JobMessage, folder: Path) -> None:
        with _log_in(folder) as log:
            size = _size(log) if log else 0
            if size > MOST_BYTES:
                self.say(f"the partial log of job {job.job} is not kept: {size >> 20} MB")
            elif log and size:
                at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
                key = self.layout.partial(job.eval_id, job.job, f"{at}-{self.instance}")
                self.objects.put(key, log)
                self.say(f"what there was of the log of job {job.job} is kept at {key}")


@contextmanager
def _log_in(folder: Path) -> Iterator[BinaryIO | None]:
    """The log that Inspect writes in a job's `folder`, open; None: there is none.

    Jobs' code may have put a link or a pipe in the place of the log, or of its folder; that is none.
    """
    with ExitStack() as opened:
        log: BinaryIO | None = None
        with suppress(OSError):
            place = opened.enter_context(folder_below(folder, "log"))
            for name in sorted(name for name in os.listdir(place) if name.endswith(".eval")):  # noqa: PTH208 - a descriptor
                with suppress(OSError):
                    log = opened.enter_context(open_to_read(name, folder=place))
                    break
        yield log


def _is_open(folder: Path) -> bool:
    """Whether there is a log that Inspect hasn't closed; one that is too large anyway counts as closed."""
    with _log_in(folder) as log:
        if log is None or _size(log) > MOST_BYTES:
            return False
        try:
            return HEADER not in zipfile.ZipFile(log).namelist()
        except BROKEN_ZIP:
            return True


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size
