"""The plan of a whole request: its job environment, and one manifest and plan log for each task and model.

Made where the run starts: in the command's own process before anything else exists, or in the flow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from bootstrap.environment import JobEnvironment, build, resolve
from bootstrap.planner import plan_tasks
from fleet.cache import cache_folder
from fleet.evals.documents import EnvironmentSpec, EvalManifest
from fleet.evals.plan import make_manifest
from fleet.evals.request import EvalRequest
from fleet.evals.source import SourceArchive, pack


@dataclass(frozen=True, slots=True)
class PlannedEval:
    """One task with one model."""

    manifest: EvalManifest
    plan_log: Path


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything that is decided before AWS is asked for anything."""

    environment: EnvironmentSpec
    source: SourceArchive | None
    evals: tuple[PlannedEval, ...]
    warnings: tuple[str, ...]


planned_ahead: ContextVar[RunPlan | None] = ContextVar("planned_ahead", default=None)
"""The plan that whoever calls the flow has made already, so that bad requests end before a flow run exists."""


def plan_run(
    request: EvalRequest,
    folder: Path,
    *,
    slots: int,
    nonce: str = "",
    env: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> RunPlan:
    """Plan a request. `slots`: jobs that run at a time on the whole fleet; `nonce` makes an eval id of its own.

    `env`: the variables of the planning process, keys among them where a provider wants its own at once; by default ours.

    Raises the `RequestRefused` family for whatever the person must change. Writes only into `folder` and the cache.
    """
    environment, source = job_environment(request, folder, say)
    say("Planning in the job environment")
    tasks = plan_tasks(request, environment, folder, env=env)
    evals = tuple(
        PlannedEval(make_manifest(task, request, environment.spec, slots=slots, nonce=nonce), task.log)
        for task in tasks
    )
    return RunPlan(environment=environment.spec, source=source, evals=evals, warnings=warnings_about(source))


def job_environment(
    request: EvalRequest, folder: Path, say: Callable[[str], None]
) -> tuple[JobEnvironment, SourceArchive | None]:
    """The job environment that a request asks for, built, and its source, packed into `folder`.

    Raises the `RequestRefused` family for what can't be packed, resolved or built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = pack(Path(request.source), folder) if request.source else None
    say("Resolving the job environment")
    spec = resolve(request.packages, source, request.python)
    say("Building the job environment")
    return build(spec, cache=cache_folder(), artifact=lambda _: _archive(source)), source


def _archive(source: SourceArchive | None) -> Path:
    if source is None:
        raise LookupError("an environment without a source asked for its archive")
    return source.path


def warnings_about(source: SourceArchive | None) -> tuple[str, ...]:
    """What a person should know of the source that is shipped, a line each."""
    if source is None or not source.untracked:
        return ()
    shown = ", ".join(source.untracked[:10]) + (", …" if len(source.untracked) > 10 else "")
    return (f"{len(source.untracked)} untracked files of the source stay behind (git add them to ship them): {shown}",)
