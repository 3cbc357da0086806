"""The result of one job: a finished Inspect log with our `JobResult` inside, looked over before anything is made of it.

The one place that says whether a result object is good. A result is good whole or not at all; `ResultUnusable` means:
set the object aside and run its job again.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.errors import FleetError
from fleet.evals.documents import EvalId, Job, JobId, JobResult, SampleRecord
from fleet.evals.eval_file import BROKEN_ZIP, HEADER, SUMMARIES, EvalFile, EvalFileUnreadable, sample_member
from fleet.wire import DocumentRefused

FINISHED = (b"success", b"error")
"""The statuses of a log that Inspect has finished; `started` and `cancelled` are the others."""

NEVER_FINISHED = "it was never finished"

# Inspect writes the status second and calls the order of these fields part of the format. The whole may be large.
_STATUS = re.compile(rb'\{\s*"version":\s*\d+,\s*"status":\s*"(\w+)"')

END_BYTES = 64 * 1024
"""Of a result's end, by which `flaw_at_end` judges: the directory of some hundred samples, and all of most results."""
_END = struct.Struct("<4s8x2LH")
"""Of a zip: signature, size and place of the directory, length of the comment."""
_ELSEWHERE = 0xFFFFFFFF
"""As the directory's size or place: a larger record says it."""
_LOCATOR = b"PK\x06\x07"
_LOCATOR_BYTES = 20
"""Of what points at that record, between it and the end. Python's zipfile writes both from 2 GiB or 65,535 members on, and says
the directory's size and place at the end as well (`_write_end_record`)."""

Pair = tuple[str, int]
"""A sample's id as text and its epoch: what Inspect tells samples apart by."""


class ResultUnusable(FleetError):
    """The result of a job can't be merged: set it aside and run the job again."""

    job: JobId
    why: str

    def message(self) -> str:
        """One line: which job, and what is wrong with its result."""
        return f"the result of job {self.job} can't be used: {self.why}"


@dataclass(frozen=True, slots=True)
class JobLog:
    """A result that has been found good, its file still open."""

    job: Job
    file: EvalFile
    result: JobResult
    summaries: dict[Pair, dict[str, Any]]
    """Inspect's own sample summaries."""


def pair_of(record: SampleRecord) -> Pair:
    """What tells this sample apart."""
    return (str(record.id), record.epoch)


@contextmanager
def open_job_log(path: Path, eval_id: EvalId, jobs: Mapping[JobId, Job]) -> Iterator[JobLog]:
    """The result at `path`, a file named `<job>.eval`. ResultUnusable: it is none, or not one of this eval's jobs."""
    name = path.stem
    if name not in jobs:
        raise ResultUnusable(job=name, why=f"eval {eval_id} has no such job")
    try:
        file = EvalFile(path)
    except EvalFileUnreadable as error:
        raise ResultUnusable(job=name, why=error.why) from error
    with file:
        try:
            log = _looked_over(jobs[name], file, eval_id)
        except EvalFileUnreadable as error:
            raise ResultUnusable(job=name, why=error.why) from error
        yield log


def flaw_at_end(end: bytes, size: int) -> str:
    """What is wrong with a result of `size` bytes, by its last ones (`END_BYTES`, or all); empty: nothing that they show.

    A cheap look, for a result that was cut short, is empty or was never finished. `open_job_log` is the whole one.
    """
    if not size:
        return "it is empty"
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or len(end) - at < _END.size:
        return "it is truncated or no zip (no directory at its end)"
    _, length, place, _ = _END.unpack_from(end, at)
    if _ELSEWHERE in (length, place) or end[:at][-_LOCATOR_BYTES:].startswith(_LOCATOR):
        return ""
    if place + length != size - len(end) + at:
        return "it is truncated or no zip (its directory isn't where its end says)"
    if length > at:
        return ""
    try:
        names = zipfile.ZipFile(io.BytesIO(end)).NameToInfo
    except BROKEN_ZIP as error:
        return f"its directory is damaged ({error})"
    return "" if {JobResult.MEMBER, HEADER} <= names.keys() else NEVER_FINISHED


def _looked_over(job: Job, file: EvalFile, eval_id: EvalId) -> JobLog:
    if JobResult.MEMBER not in file or HEADER not in file:
        raise ResultUnusable(job=job.job, why=NEVER_FINISHED)
    status = _STATUS.match(file.read(HEADER))
    if status is None or status[1] not in FINISHED:
        found = status[1].decode() if status else "missing"
        raise ResultUnusable(job=job.job, why=f"it was never finished (its status is {found})")
    try:
        result = JobResult.read(file.read(JobResult.MEMBER))
        summaries = {(str(one["id"]), int(one["epoch"])): one for one in json.loads(file.read(SUMMARIES))}
    except (DocumentRefused, ValueError, LookupError, TypeError) as error:
        raise ResultUnusable(job=job.job, why=str(error)) from error
    if (result.eval_id, result.job) != (eval_id, job.job):
        raise ResultUnusable(job=job.job, why=f"it is that of job {result.job} of eval {result.eval_id}")
    held = {pair_of(record) for record in result.samples}
    if not job.whole:
        wanted = {(str(ref.id), ref.epoch) for ref in job.samples}
        if held != wanted:
            raise ResultUnusable(
                job=job.job,
                why=f"it lacks {len(wanted - held)} of its {len(wanted)} samples, and has {len(held - wanted)} others",
            )
    for record in result.samples:
        if pair_of(record) not in summaries:
            raise ResultUnusable(job=job.job, why=f"it has no summary of sample {record.id}, epoch {record.epoch}")
        file.seek(sample_member(record.id, record.epoch))
    return JobLog(job, file, result, summaries)
