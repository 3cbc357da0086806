"""What there was of a job's log when its attempt ended without a result: kept for a person, and never a result.

The job has gone back to the queue by then, and nothing waits for this but the worker's end: so it is bounded in time and size.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import anyio

from bootstrap.clockwork import Clockwork
from fleet.aws.failures import AwsRefused
from fleet.evals.documents import JobMessage
from fleet.evals.eval_file import HEADER
from fleet.evals.layout import Layout

ENDING_SECONDS = 8.0
"""How long a runner that was told to end is waited for: Inspect writes the samples that are done as it unwinds."""
LOOK_SECONDS = 0.25
MOST_BYTES = 64 * 2**20
"""A larger log is left where it is, and goes with the instance."""


class PutsObjects(Protocol):
    """What is needed of `fleet.aws.objects.Objects`."""

    def put(self, key: str, data: bytes | Path) -> None:
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
        with anyio.CancelScope(shield=True):
            log = _log_in(folder)
            until = self.clockwork.now() + ENDING_SECONDS
            while ending and log and not _is_whole(log) and self.clockwork.now() < until:
                await self.clockwork.sleep(LOOK_SECONDS)
            try:
                if log is not None:
                    await self._put(job, log, log.stat().st_size)
            except (AwsRefused, OSError) as error:  # its disk may be what the attempt ended for
                self.say(f"the partial log of job {job.job} is not kept: {error}")

    async def _put(self, job: JobMessage, log: Path, size: int) -> None:
        if size > MOST_BYTES:
            self.say(f"the partial log of job {job.job} is not kept: {size >> 20} MB")
        elif size:
            at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            key = self.layout.partial(job.eval_id, job.job, f"{at}-{self.instance}")
            await self.clockwork.in_thread(self.objects.put, key, log)
            self.say(f"what there was of the log of job {job.job} is kept at {key}")


def _log_in(folder: Path) -> Path | None:
    """A file alone: jobs' code may have put a link or a pipe there."""
    logs = (path for path in sorted((folder / "log").glob("*.eval")) if path.is_file() and not path.is_symlink())
    return next(logs, None)


def _is_whole(log: Path) -> bool:
    """Whether Inspect has closed the log."""
    try:
        with zipfile.ZipFile(log) as archive:
            return HEADER in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
