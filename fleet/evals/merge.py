"""One `.eval` from the logs of many jobs, equal to what a single `inspect eval` would have written.

Samples are copied as they lie in their archives. What is computed again (metrics, reductions, summed usage, the header)
is computed by Inspect itself in the job environment (`Recompute`), since a user's own metrics import only there. Job
logs come one after another and are not needed afterwards; memory grows by an index entry a sample, not by its content.

The invariant: a result is merged whole or not at all. What can't be used is reported, and its samples count as absent.
"""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from fleet.evals.documents import EvalManifest, JobId, SampleRecord
from fleet.evals.eval_file import HEADER, REDUCTIONS, START, SUMMARIES, EvalFile, EvalFileWriter, sample_member
from fleet.evals.job_log import JobLog, ResultUnusable, open_job_log, pair_of
from fleet.evals.outcome import AbsentSamples, Outcome, Status, decide

CANCELLED = ("CancelledError(", "Cancelled(")
"""How the error of a cancelled sample begins. That is no outcome, for Inspect as for us, and this text is all it leaves."""

Place = tuple[int, int, str]
"""Where a sample stands in the merged log: epoch, position in the dataset; its id, where the plan doesn't have it."""


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """What the header says that doesn't follow from the samples."""

    outcome: Outcome
    total_samples: int
    """As planned, whether or not all are there."""
    started_at: str
    completed_at: str
    """ISO 8601; empty where nothing ran."""


class Recomputing(Protocol):
    """Inspect, at work in the job environment."""

    def finish(self, records: Path, facts: HeaderFacts, out: Path) -> None:
        """Write at `out` an `.eval` without samples, with the header and the reductions of the merged log.

        `records` has one JSON object a line, in any order: a sample (`place`, `id`, `epoch`, `scores`, `metadata`,
        `failed`) or the usage of a job (`job`, its id; `model_usage`, `role_usage`).
        """
        ...


Recompute = Callable[[Path], AbstractContextManager[Recomputing]]
"""Starts Inspect for a plan log. It is entered before any copying, so that its import, which takes seconds, costs none."""


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What became of a merge."""

    path: Path
    status: Status
    error: str | None
    planned: int
    """(sample, epoch) pairs that the eval has."""
    samples: int
    """Those that the log holds."""
    sample_errors: int
    cancelled: int
    """Samples left out because they had been cancelled."""
    duplicates: int
    """Samples left out because an earlier log had them."""
    absent: tuple[AbsentSamples, ...]
    unusable: tuple[ResultUnusable, ...]
    results: dict[str, Any] | None
    """Inspect's `EvalResults` as JSON; None where no sample came through."""
    stats: dict[str, Any]
    """Inspect's `EvalStats` as JSON."""
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What samples took by Inspect's own clock, by the texts of their ids: an epoch each that came through without an error."""


def merge(
    manifest: EvalManifest,
    plan_log: Path,
    job_logs: Iterable[Path],
    out: Path,
    *,
    recompute: Recompute,
    missing: Mapping[JobId, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> MergeReport:
    """Merge job logs, each a file named `<job>.eval`, into `out`, which appears only when it is whole.

    `missing` says why jobs have no result. `progress` is told after each log how many samples are in. A job log may be
    deleted once the next one is asked for. EvalFileUnreadable: the plan log itself is no good.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".merge-", dir=out.parent) as folder,
        EvalFile(plan_log) as plan,
        recompute(plan_log) as inspect,
        _Merge(manifest, plan, Path(folder)) as work,
    ):
        for path in job_logs:
            work.take(path)
            if progress is not None:
                progress(len(work.placed))
        report = work.finish(inspect, missing or {}, out)
        work.path.replace(out)
    return report


class _Merge:
    """One merge on its way."""

    def __init__(self, manifest: EvalManifest, plan: EvalFile, folder: Path) -> None:
        self.manifest = manifest
        self.plan = plan
        self.path = folder / "merged.eval"
        self.placed: dict[str, Place] = {}
        """The samples there are, by the names of their members."""
        self._folder = folder
        self._positions = {str(sample_id): position for position, sample_id in enumerate(manifest.sample_ids)}
        self._jobs = {job.job: job for job in manifest.jobs}
        self._taken: set[JobId] = set()
        self._unusable: dict[JobId, ResultUnusable] = {}
        self._cancelled = 0
        self._duplicates = 0
        self._errors = 0
        self._first_error: tuple[Place, dict[str, Any]] | None = None
        self._times: tuple[datetime, ...] = ()
        """The earliest and the latest at which a job began or ended."""
        self._whole: dict[str, Any] | None = None
        self._spooled: list[Place] = []
        self._spooled_at = array("Q", (0,))
        """Where the summary of each begins, and the last one's ends."""
        self._seconds: dict[str, list[float]] = {}

    def __enter__(self) -> _Merge:
        self._log = EvalFileWriter(self.path)
        self._log.copy(self.plan, START)
        self._records = (self._folder / "records.jsonl").open("w", encoding="utf-8")
        self._summary_spool = (self._folder / "summaries").open("w+b")
        return self

    def __exit__(self, *_: object) -> None:
        self._summary_spool.close()
        self._records.close()
        self._log.close()

    def take(self, path: Path) -> None:
        """Merge one job log, or note why it can't be used."""
        try:
            with open_job_log(path, self.manifest.eval_id, self._jobs) as log:
                self._add(log)
        except ResultUnusable as error:
            if error.job not in self._taken:
                self._unusable[error.job] = error

    def _add(self, log: JobLog) -> None:
        job = log.job.job
        kept = [record for record in log.result.samples if not _was_cancelled(record)]
        fresh = [record for record in kept if _member_of(record) not in self.placed]
        self._duplicates += len(kept) - len(fresh)
        if job in self._taken or (kept and not fresh):
            return  # all of it is there already: it adds nothing, no usage either
        if log.job.whole:
            self._whole = json.loads(log.file.read(HEADER))
            if REDUCTIONS in log.file:
                self._log.copy(log.file, REDUCTIONS)
        self._taken.add(job)
        self._unusable.pop(job, None)
        self._cancelled += len(log.result.samples) - len(kept)
        for record in fresh:
            member = _member_of(record)
            place = self.placed[member] = self._place(record)
            self._log.copy(log.file, member)
            summary = log.summaries[pair_of(record)]
            self._spool(place, summary)
            self._note(place, record)
            if record.error is None and (took := summary.get("total_time")):
                self._seconds.setdefault(str(record.id), []).append(took)
        found = (datetime.fromisoformat(at) for at in (log.result.started_at, log.result.completed_at) if at)
        if times := (*self._times, *found):
            self._times = (min(times), max(times))
        usage = {
            "job": job,
            "model_usage": log.result.model_usage,
            "role_usage": log.result.role_usage,
        }
        self._records.write(json.dumps(usage) + "\n")

    def _place(self, record: SampleRecord) -> Place:
        position = self._positions.get(str(record.id))
        if position is not None:
            return (record.epoch, position, "")
        # Of a task that makes samples as it goes: behind those of the plan, in the order of Inspect's reader.
        name = record.id if isinstance(record.id, str) else str(record.id).zfill(20)
        return (record.epoch, len(self._positions), name)

    def _spool(self, place: Place, summary: dict[str, Any]) -> None:
        content = json.dumps(summary, ensure_ascii=False, separators=(",", ":")).encode()
        self._spooled.append(place)
        self._spooled_at.append(self._spooled_at[-1] + self._summary_spool.write(content))

    def _note(self, place: Place, record: SampleRecord) -> None:
        if record.error is not None:
            self._errors += 1
            if self._first_error is None or place < self._first_error[0]:
                self._first_error = (place, record.error)
        light = {
            "place": place,
            "id": record.id,
            "epoch": record.epoch,
            "scores": record.scores,
            "metadata": record.metadata,
            "failed": record.error is not None,
        }
        self._records.write(json.dumps(light) + "\n")

    def finish(self, inspect: Recomputing, missing: Mapping[JobId, str], out: Path) -> MergeReport:
        """Write what belongs to the eval as a whole, and close the log."""
        plan = json.loads(self.plan.read(START))
        absent = tuple(self._absent(missing))
        planned = self._planned()
        outcome = decide(
            plan["eval"].get("config", {}),
            total=planned,
            errors=self._errors,
            first_error=self._first_error[1] if self._first_error else None,
            absent=absent,
        )
        self._records.close()
        self._write_summaries()
        if self._whole is not None:
            header = _judged(self._whole, outcome)
        else:
            header = self._recomputed(inspect, HeaderFacts(outcome, planned, *_span(self._times)))
        # As the plan log has them, byte for byte: the user's and not a worker's, and not read and written once more.
        header |= {"eval": plan["eval"], "plan": plan["plan"]}
        with self._log.open(HEADER) as member:
            member.write(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode())
        self._close_log()
        return MergeReport(
            path=out,
            status=header["status"],
            error=(header.get("error") or {}).get("message"),
            planned=planned,
            samples=len(self.placed),
            sample_errors=self._errors,
            cancelled=self._cancelled,
            duplicates=self._duplicates,
            absent=absent,
            unusable=tuple(self._unusable.values()),
            results=header.get("results"),
            stats=header.get("stats", {}),
            seconds=self._seconds,
        )

    def _planned(self) -> int:
        if self._whole is not None:
            results = self._whole.get("results") or {}
            return int(results.get("total_samples", len(self.placed)))
        return len(self.manifest.sample_ids) * self.manifest.epochs

    def _absent(self, missing: Mapping[JobId, str]) -> Iterator[AbsentSamples]:
        for job in self.manifest.jobs:
            if job.whole:
                if job.job not in self._taken:
                    yield AbsentSamples(job.job, self._planned(), self._why_absent(job.job, missing))
                continue
            lacking = sum(sample_member(ref.id, ref.epoch) not in self.placed for ref in job.samples)
            if lacking:
                yield AbsentSamples(job.job, lacking, self._why_absent(job.job, missing))

    def _why_absent(self, job: JobId, missing: Mapping[JobId, str]) -> str:
        if job in self._unusable:
            return f"its result can't be used: {self._unusable[job].why}"
        if job in self._taken:
            return "cancelled while it ran"
        return missing.get(job, "it has no result")

    def _write_summaries(self) -> None:
        with self._log.open(SUMMARIES) as member:
            member.write(b"[")
            for number, index in enumerate(sorted(range(len(self._spooled)), key=self._spooled.__getitem__)):
                start, end = self._spooled_at[index : index + 2]
                self._summary_spool.seek(start)
                member.write((b"," if number else b"") + self._summary_spool.read(end - start))
            member.write(b"]")

    def _recomputed(self, inspect: Recomputing, facts: HeaderFacts) -> dict[str, Any]:
        made = self._folder / "header.eval"
        inspect.finish(self._folder / "records.jsonl", facts, made)
        with EvalFile(made) as log:
            if REDUCTIONS in log:
                self._log.copy(log, REDUCTIONS)
            header: dict[str, Any] = json.loads(log.read(HEADER))
            return header

    def _close_log(self) -> None:
        """Close it with its directory in the order of a plain log: the start, the samples as planned, what sums them up."""
        last = (1, (0, 0, ""))
        self._log.finish(
            lambda name: (-1, (0, 0, "")) if name == START else (0, self.placed[name]) if name in self.placed else last
        )


def _member_of(record: SampleRecord) -> str:
    return sample_member(record.id, record.epoch)


def _was_cancelled(record: SampleRecord) -> bool:
    return record.error is not None and str(record.error.get("message", "")).startswith(CANCELLED)


def _span(times: tuple[datetime, ...]) -> tuple[str, str]:
    return (times[0].isoformat(), times[-1].isoformat()) if times else ("", "")


def _judged(header: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The header of a task that ran in one piece, under the user's rule for errors."""
    if header["status"] != "success" or outcome.status == "success":
        return dict(header)
    return {**header, "status": outcome.status} | ({"error": outcome.error} if outcome.error else {})
