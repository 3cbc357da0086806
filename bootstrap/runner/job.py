"""One job: exactly its (sample, epoch) pairs, by Inspect, into one log with our summary in it."""

from __future__ import annotations

import copy
import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from inspect_ai import SampleSource, enqueue_sample, eval_async, task_with
from inspect_ai.dataset import Sample
from inspect_ai.hooks import Hooks, ModelRetry, hooks

from . import inside
from .refusal import Refused, first_line
from .settings import at_once, call, job_settings
from .tasks import Built, build

TASKS_KEPT = 4
"""Built tasks that a runner keeps: a fleet may work several evals by turns, and datasets can be large."""

RATE_LIMITED = frozenset({429, 529})
"""HTTP statuses by which a provider says "too many"; 529 is Anthropic's."""

MEMBER = "fleet.json"
"""The summary's place in the log: `JobResult.MEMBER`."""


class JobIncomplete(Exception):
    """The log doesn't hold each planned (sample, epoch) once."""


@hooks(name="inspect_fleet", description="counts refusals by rate")
class Refusals(Hooks):
    """How often a provider refused by rate, over all samples of this process; who wants to know it at once is told."""

    count = 0
    at_once = 1
    """Samples that run side by side in the job."""
    tell: Callable[[float], None] = staticmethod(lambda _seconds: None)
    """Called with the seconds that the job as a whole loses by waiting."""

    async def on_model_retry(self, data: ModelRetry) -> None:
        """Inspect's own retry of a model call; the sample goes on."""
        if data.status_code in RATE_LIMITED:
            Refusals.count += 1
            Refusals.tell(data.wait_time / Refusals.at_once)


class Planned(SampleSource):
    """A dataset that is exactly the given pairs."""

    def __init__(self, pairs: list[tuple[Sample, int]]) -> None:
        self._pairs = pairs

    async def next_samples(self) -> list[Sample] | None:
        """All pairs at first, then none. The epochs are the real ones: solvers, caches and records see them."""
        if not self._pairs:
            return None
        pairs, self._pairs = self._pairs, []
        for sample, epoch in pairs:
            enqueue_sample(sample, epoch=epoch)
        return []


class Jobs:
    """Runs jobs one after the other; what they share (tasks, models, connections) stays warm."""

    def __init__(self) -> None:
        self._built: dict[str, Built] = {}

    async def run(
        self, what: Mapping[str, Any], job: Mapping[str, Any], folder: Path, rates: str | None
    ) -> dict[str, Any]:
        """Run a job of the eval `what` and answer where its log is.

        Refused: SampleAbsent, SampleChanged, or what the planner would refuse. Anything that Inspect raises for the task as
        a whole comes as it is; an error of a sample is kept in the log.
        """
        began, refused_before = time.monotonic(), Refusals.count
        built = self._task(what)
        wanted: set[tuple[str, int]] | None = None
        if job.get("whole"):
            task = built.only(what["task"].get("sample_ids") or [])
        else:
            pairs = [(await _inlined(built.sample(ref["id"], ref["digest"])), ref["epoch"]) for ref in job["samples"]]
            wanted = {(str(ref["id"]), ref["epoch"]) for ref in job["samples"]}
            task = task_with(copy.copy(built.task), dataset=Planned(pairs))
        settings = job_settings(what.get("eval_config") or {}, len(wanted) if wanted else None)
        Refusals.at_once = at_once(settings, what.get("generate_config") or {})
        scratch = folder / "log"
        scratch.mkdir(parents=True, exist_ok=True)
        with inside.without_metrics() if wanted else nullcontext():
            logs = await eval_async(
                task,
                **call(what),
                **settings,
                log_dir=str(scratch),
                log_header_only=True,
                model_cost_config=rates,
                debug_errors=True,  # so that a failure comes as the exception it is
            )
        if not logs or logs[0].status != "success":
            raise JobIncomplete(f"the log ended as {logs[0].status if logs else 'nothing'}")
        written = Path(logs[0].location.removeprefix("file://"))
        summary = summarise(written, wanted)
        seconds = time.monotonic() - began
        summary |= {"version": 1, "eval_id": what["eval_id"], "job": job["job"], "seconds": round(seconds, 3)}
        summary["instance"] = what.get("instance", "")
        with zipfile.ZipFile(written, "a", zipfile.ZIP_DEFLATED) as log:
            log.writestr(MEMBER, json.dumps(summary))
        place = folder / f"{job['job']}.eval"
        os.replace(written, place)  # noqa: PTH105 - the same, on every Python
        shutil.rmtree(scratch, ignore_errors=True)
        return {"log": str(place), "seconds": seconds, "rate_limited": Refusals.count - refused_before}

    def _task(self, what: Mapping[str, Any]) -> Built:
        """The task of `what`, built once. A task that runs whole may keep a state of its own: it is built each time."""
        key = json.dumps([what["task"], what["model"], what["generate_config"], what["eval_config"]], sort_keys=True)
        built = self._built.pop(key, None) or build(what)
        if built.splittable:
            self._built[key] = built
        while len(self._built) > TASKS_KEPT:
            del self._built[next(iter(self._built))]
        return built


def summarise(log: Path, wanted: set[tuple[str, int]] | None) -> dict[str, Any]:
    """What the merge needs, in Inspect's own JSON, as it stands in the log. JobIncomplete: not each pair of `wanted` once."""
    with zipfile.ZipFile(log) as archive:
        header = json.loads(archive.read("header.json"))
        names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
        records = []
        for name in names:
            sample = json.loads(archive.read(name))
            error = sample.get("error")
            if error and str(error.get("message", "")).startswith(("CancelledError(", "Cancelled(")):
                raise JobIncomplete(f"sample {sample['id']} was cancelled")
            kept = {"scores": sample.get("scores"), "metadata": planned_metadata(sample), "error": error}
            records.append({"id": sample["id"], "epoch": sample["epoch"], **kept})
    found = {(str(record["id"]), record["epoch"]) for record in records}
    if len(found) != len(records) or (wanted is not None and found != wanted):
        missing = sorted((wanted or found) - found)[:3]
        raise JobIncomplete(
            f"{len(records)} samples in the log, missing {missing}" if missing else "a sample is there twice"
        )
    stats = header["stats"]
    return {
        "samples": records,
        "started_at": stats.get("started_at") or "",
        "completed_at": stats.get("completed_at") or "",
        "model_usage": stats.get("model_usage") or {},
        "role_usage": stats.get("role_usage") or {},
    }


def planned_metadata(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that the dataset gave a logged sample: these, and no solver's changes, are what metrics see in a plain run.

    The transcript begins with them, long texts apart as attachments.
    """
    attached = {f"attachment://{name}": text for name, text in (sample.get("attachments") or {}).items()}

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: whole(part) for name, part in value.items()}
        if isinstance(value, list):
            return [whole(part) for part in value]
        return attached.get(value, value) if isinstance(value, str) else value

    begun = next((event["sample"] for event in sample.get("events") or () if event["event"] == "sample_init"), sample)
    metadata: dict[str, Any] = whole(begun.get("metadata") or {})
    return metadata


async def _inlined(sample: Sample) -> Sample:
    """The sample with its media; where that fails it is left to Inspect to say so, in the sample's own error."""
    try:
        return await inside.with_media(sample)
    except (OSError, ValueError):
        return sample


def bases(error: BaseException) -> list[str]:
    """Names of an exception's class and its bases, nearest first; a refusal goes by its kind."""
    if isinstance(error, Refused):
        return [error.kind]
    return [kind.__name__ for kind in type(error).__mro__ if kind not in (object, BaseException, Exception)] or [
        "Exception"
    ]


def why(error: BaseException) -> str:
    """What a person reads of an exception."""
    if isinstance(error, inside.PrerequisiteError):
        return inside.said_by(error)
    if isinstance(error, Refused):
        return ", ".join(f"{name} {value}" for name, value in error.facts.items() if value)
    return first_line(error)
