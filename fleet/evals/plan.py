"""From what Inspect says of a task with a model to the jobs of a fleet, and the identity by which a run is found again.

Pure: the same plan, request and environment make the same manifest, on any machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.evals.documents import EnvironmentSpec, EvalManifest, Job, SampleRef
from fleet.evals.request import EvalRequest, ModelSpec, TaskSpec

MOST_SAMPLES = 16
"""Samples in a job, at most: what is lost with an instance, and how long a job keeps its slot."""

JOBS_PER_SLOT = 4
"""Jobs that each slot gets, about: fewer leave slots idle at the end, more cost a message and an object each."""

LIKE = 0.5
"""Samples share a job if none is expected to take less than this share of its longest: they run side by side, and the results of
all are stored when the last is done."""

SHORT_S = 30.0
"""Seconds up to which samples share a job in any case."""

NEUTRAL_EVAL_KEYS = frozenset(
    {
        "max_samples",
        "max_tasks",
        "max_subprocesses",
        "max_sandboxes",
        "max_dataset_memory",
        "sandbox_cleanup",
        "sandbox_prebuilt",
        "log_realtime",
        "log_buffer",
        "log_shared",
        "score_display",
        "acp_server",
        "notification",
    }
)
"""Fields of Inspect's EvalConfig that say how an eval is run and not what is evaluated."""

NEUTRAL_GENERATE_KEYS = frozenset({"max_connections", "adaptive_connections"})
"""The same, of Inspect's GenerateConfig."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task with one model, as Inspect resolved it in the job environment."""

    task: TaskSpec
    model: ModelSpec
    log: Path
    """The plan log: Inspect's own, status `started`."""
    task_name: str
    """As the log names the task."""
    eval_config: dict[str, Any]
    """The request's, with an explicit seed where samples are shuffled."""
    sample_ids: list[int | str]
    """In the order of the dataset."""
    digests: list[str]
    """Of each sample's content; empty for a dataset that is made while it runs."""
    epochs: int
    splittable: bool
    """Whether samples can run apart. Not where the task stops early by itself or makes its dataset while it runs."""
    needs_docker: bool


def make_manifest(
    plan: TaskPlan,
    request: EvalRequest,
    environment: EnvironmentSpec,
    *,
    slots: int,
    nonce: str = "",
    rates: bytes | None = None,
) -> EvalManifest:
    """The manifest of one eval. `slots`: jobs that run at a time on the whole fleet; `nonce` makes an eval id of its own.

    `rates`: the table of model prices, where there is one.
    """
    identity = identify(plan, request, environment, nonce=nonce, rates=rates)
    return EvalManifest(
        eval_id=f"{slug(plan.task.name)}-{_digest(identity)}",
        task=plan.task,
        model=plan.model,
        solver=request.solver,
        eval_config=plan.eval_config,
        generate_config=request.generate_config,
        tags=request.tags,
        metadata=request.metadata,
        environment=environment,
        needs_docker=plan.needs_docker,
        sample_ids=plan.sample_ids,
        epochs=plan.epochs,
        jobs=make_jobs(plan, samples_per_job(plan, request, slots=slots)),
        log_name=plan.log.name,
        identity=identity,
    )


def identify(
    plan: TaskPlan,
    request: EvalRequest,
    environment: EnvironmentSpec,
    *,
    nonce: str = "",
    rates: bytes | None = None,
) -> dict[str, str]:
    """What decides the result, each part as a digest: two runs with equal parts are one eval, unequal ones say what changed."""
    config = {key: value for key, value in plan.eval_config.items() if key not in NEUTRAL_EVAL_KEYS}
    generate = {key: value for key, value in request.generate_config.items() if key not in NEUTRAL_GENERATE_KEYS}
    parts: dict[str, Any] = {
        "task": plan.task.model_dump(mode="json"),
        "model": plan.model.model_dump(mode="json"),
        "solver": request.solver.model_dump(mode="json") if request.solver else None,
        "eval_config": config,
        "generate_config": generate,
        "source": environment.source,
        "settings": [[setting.name, setting.files, setting.commit] for setting in environment.settings],
        "packages": sorted(environment.lock.split("\n")),
        "python": environment.python,
        "samples": [plan.epochs, [[type(it).__name__, it] for it in plan.sample_ids], plan.digests],
        "new_fleet": nonce,
    }
    if rates is not None:  # one log has costs by one table, and a cost limit ends samples by it
        parts["model_cost_config"] = rates.decode()
    return {name: _digest(part) for name, part in parts.items()}


def samples_per_job(plan: TaskPlan, request: EvalRequest, *, slots: int) -> int:
    """The request's number; `auto`: one where a sample has a sandbox, else so many that slots get a few jobs each."""
    if request.samples_per_job != "auto":
        return request.samples_per_job
    if plan.needs_docker:
        return 1
    pairs = len(plan.sample_ids) * plan.epochs
    return min(max(math.ceil(pairs / (JOBS_PER_SLOT * max(slots, 1))), 1), MOST_SAMPLES)


def make_jobs(plan: TaskPlan, size: int) -> list[Job]:
    """The jobs in plan order (epoch-major): each (sample, epoch) in exactly one, `size` of them in each but the last."""
    if not plan.splittable:
        return [Job(job=_job_id(0, [plan.task_name]), samples=[], whole=True)]
    pairs = [
        SampleRef(id=sample_id, epoch=epoch, digest=digest)
        for epoch in range(1, plan.epochs + 1)
        for sample_id, digest in zip(plan.sample_ids, plan.digests, strict=True)
    ]
    return _jobs(pairs[start : start + size] for start in range(0, len(pairs), size))


def resized(manifest: EvalManifest, seconds: Callable[[SampleRef], float | None]) -> EvalManifest:
    """The manifest with jobs of samples of like length, no larger than before: short ones share, a far longer one stands alone.

    `seconds`: what a sample is expected to take. Where nothing is known of one, or each has a job of its own, it stays as it is.
    The identity is the same: how samples are put into jobs decides no result.
    """
    pairs = [ref for job in manifest.jobs for ref in job.samples]
    size = max((len(job.samples) for job in manifest.jobs), default=0)
    expected = [one for ref in pairs if (one := seconds(ref)) is not None]
    if size <= 1 or len(expected) < len(pairs):
        return manifest
    chunks: list[list[int]] = []
    longest = 0.0
    for place in sorted(range(len(pairs)), key=lambda place: -expected[place]):
        if not chunks or len(chunks[-1]) == size or expected[place] < min(LIKE * longest, longest - SHORT_S):
            chunks.append([])
            longest = expected[place]
        chunks[-1].append(place)
    in_order = sorted(sorted(chunk) for chunk in chunks)
    return manifest.model_copy(update={"jobs": _jobs([pairs[place] for place in chunk] for chunk in in_order)})


def settled_config(config: Mapping[str, Any], task: TaskSpec) -> dict[str, Any]:
    """The eval config that planner and runners take: a shuffle without a seed gets the seed of the task.

    The same for every model, so that all see the same samples, and whatever else the request asks for.
    """
    if config.get("sample_shuffle") is not True:
        return dict(config)
    told = task.model_dump(mode="json", include={"name", "args"})
    return {**config, "sample_shuffle": int(_digest(told)[:7], 16) + 1}  # 0 would mean no shuffle


def slug(task: str) -> str:
    """A task's name as the readable part of an id: lower case letters, digits and dashes, at most 40."""
    name = task.rsplit("@", 1)[-1].rsplit("/", 1)[-1]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "task"


def changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Names of the parts in which two identities differ."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _jobs(chunks: Iterable[list[SampleRef]]) -> list[Job]:
    return [
        Job(job=_job_id(number, [asdict(ref) for ref in chunk]), samples=chunk) for number, chunk in enumerate(chunks)
    ]


def _job_id(position: int, content: Sequence[Any]) -> str:
    return f"{position:06}-{_digest(content)[:8]}"


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
