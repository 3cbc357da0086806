"""How long samples took in earlier runs of the same task and model, and what that lets expect of the next one.

One object for each task and model, written where a run's results are merged, also those of a run that misses some. It is a hint:
two runs that end at once may lose each other's, and without it everything goes as in a first run.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from fleet.aws.objects import ObjectAbsent
from fleet.evals.documents import EvalManifest, Job, SampleRef
from fleet.evals.last import name_of
from fleet.evals.site import Site
from fleet.wire import DocumentRefused, Wire

MOST_SAMPLES_KEPT = 100_000
"""Samples in one history, about 3 MB; the ones that ran longest ago go first."""


class DurationHistory(Wire):
    """What lies at `durations/<task and model>.json`."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    seconds: dict[str, float] = {}
    """By `sample_key`: the median over the epochs of the latest run that had the sample. The latest run's come last."""
    slots: int = 0
    """Jobs at a time at which the instances of the last run had settled; 0: not known."""


@dataclass(frozen=True)
class Expectation:
    """What earlier runs let expect of one task with one model. Without any, nothing: every answer is None."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """As in the history."""
    slots: int = 0
    """Likewise."""

    @cached_property
    def typical(self) -> float | None:
        """Seconds that a sample takes which has never run."""
        return statistics.median(self.seconds.values()) if self.seconds else None

    def of_ref(self, ref: SampleRef) -> float | None:
        """Seconds of a sample: its own, else the task's median. None: nothing is known."""
        return self.seconds.get(sample_key(ref.id, ref.digest), self.typical)

    def of_job(self, job: Job, at_once: int | None = None) -> float | None:
        """Seconds of a job, whose samples a runner runs side by side: `at_once` of them, where the request limits that.

        None: nothing is known, as of a task that can't be split.
        """
        expected = [one for ref in job.samples if (one := self.of_ref(ref)) is not None]
        return makespan(expected, at_once or len(expected)) if expected else None


def sample_key(sample_id: int | str, digest: str) -> str:
    """A sample's name in a history: of one size, however long its id is. Changed content is another sample."""
    return hashlib.sha256(json.dumps([sample_id, digest]).encode()).hexdigest()[:16]


def makespan(seconds: Sequence[float], at_once: int) -> float:
    """When the last of these ends, begun in this order, at most `at_once` at a time."""
    if len(seconds) <= at_once:
        return max(seconds, default=0.0)
    ends = list(seconds[:at_once])
    heapq.heapify(ends)
    for one in seconds[at_once:]:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def expected_of(site: Site, manifest: EvalManifest) -> Expectation:
    """What to expect of an eval. AwsRefused."""
    history = _history(site, manifest)
    return Expectation(history.seconds, history.slots)


def expected_jobs(manifest: EvalManifest, expectation: Expectation) -> dict[str, float]:
    """Seconds of each job of which something is known."""
    config = manifest.eval_config.get("max_samples")
    at_once = config if isinstance(config, int) else None
    found = ((job.job, expectation.of_job(job, at_once)) for job in manifest.jobs)
    return {job: seconds for job, seconds in found if seconds is not None}


def note_durations(site: Site, manifest: EvalManifest, seconds: Mapping[str, Iterable[float]]) -> None:
    """Keep what the samples of an eval took, by the texts of their ids: an epoch each. AwsRefused.

    The same results may be noted again: the latest word on a sample replaces the one before.
    """
    fresh = {
        sample_key(ref.id, ref.digest): round(statistics.median(took), 1)
        for job in manifest.jobs
        for ref in job.samples
        if (took := list(seconds.get(str(ref.id), ())))
    }
    if fresh:
        _keep(site, manifest, after_run(_history(site, manifest), fresh))


def note_slots(site: Site, manifest: EvalManifest, slots: int) -> None:
    """Keep at how many jobs at a time the instances of a run had settled. AwsRefused."""
    history = _history(site, manifest)
    if slots != history.slots:
        _keep(site, manifest, history.model_copy(update={"slots": slots}))


def after_run(history: DurationHistory, fresh: Mapping[str, float]) -> DurationHistory:
    """The history with what a run has added, within its bound."""
    old = {key: seconds for key, seconds in history.seconds.items() if key not in fresh}
    kept = [*old.items(), *fresh.items()][-MOST_SAMPLES_KEPT:]
    return history.model_copy(update={"seconds": dict(kept)})


def _history(site: Site, manifest: EvalManifest) -> DurationHistory:
    with suppress(ObjectAbsent, DocumentRefused):  # of another release: a hint is no reason to stop
        return DurationHistory.read(site.objects.get(site.layout.durations(name_of(manifest))))
    return DurationHistory()


def _keep(site: Site, manifest: EvalManifest, history: DurationHistory) -> None:
    site.objects.put(site.layout.durations(name_of(manifest)), history.write().encode())
