"""The plan of a whole request: its job environment, and one manifest and plan log for each task and model.

Made where the run starts: in the command's own process before anything else exists, or in the flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from bootstrap.environment import JobEnvironment, build, resolve
from bootstrap.planner import plan_tasks
from bootstrap.setting_values import values_in_place
from fleet.cache import cache_folder
from fleet.evals.documents import EnvironmentSpec, EvalManifest
from fleet.evals.plan import make_manifest
from fleet.evals.rates import rates_file
from fleet.evals.request import EvalRequest
from fleet.evals.setting_values import setting_values
from fleet.evals.settings import SettingArchive, pack_settings, warnings_about
from fleet.evals.source import SourceArchive, pack


@dataclass(frozen=True, slots=True)
class PlannedEval:
    """One task with one model."""

    manifest: EvalManifest
    plan_log: Path


@dataclass(frozen=True, slots=True)
class Ground:
    """A job environment, and what of this machine was packed for it."""

    environment: JobEnvironment
    archives: tuple[Path, ...]
    """Of the source and the settings, named by their SHA-256."""
    warnings: tuple[str, ...]
    """What a person should know of what is shipped, a line each."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything that is decided before AWS is asked for anything."""

    environment: EnvironmentSpec
    archives: tuple[Path, ...]
    """The files that `environment` names by their SHA-256, each named so: what workers will look for."""
    evals: tuple[PlannedEval, ...]
    warnings: tuple[str, ...]
    rates: Path | None = None
    """The table of model prices, by which every worker prices."""
    sizes_by_person: bool = False
    """The request says how many samples a job has."""

    @property
    def needs_docker(self) -> bool:
        """Whether any sample does."""
        return any(one.manifest.needs_docker for one in self.evals)


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
    rates = rates_file(request.model_cost_config, folder)
    values = setting_values(request.settings)
    ground = job_environment(request, folder, say)
    environment = ground.environment
    say("Planning in the job environment")
    with values_in_place(environment, values):
        tasks = plan_tasks(request, environment, folder, env=env, rates=rates)
    table = rates.read_bytes() if rates else None
    evals = tuple(
        PlannedEval(make_manifest(task, request, environment.spec, slots=slots, nonce=nonce, rates=table), task.log)
        for task in tasks
    )
    return RunPlan(
        environment=environment.spec,
        archives=ground.archives,
        evals=evals,
        warnings=ground.warnings,
        rates=rates,
        sizes_by_person=request.samples_per_job != "auto",
    )


def job_environment(request: EvalRequest, folder: Path, say: Callable[[str], None]) -> Ground:
    """What a request's jobs stand on: its source and settings packed into `folder`, its job environment built.

    Raises the `RequestRefused` family for what can't be packed, resolved or built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = pack(Path(request.source), folder) if request.source else None
    settings = pack_settings(request.settings, folder)
    say("Resolving the job environment")
    spec = resolve(request.packages, source, request.python, settings)
    packed = [archive for setting in settings for archive in (setting.files, setting.git)]
    archives = {archive.sha256: archive.path for archive in ([source, *packed] if source else packed)}
    say("Building the job environment")
    environment = build(spec, cache=cache_folder(), artifact=archives.__getitem__)
    return Ground(
        environment=environment,
        archives=tuple(archives.values()),
        warnings=(*_staying_behind("the source", source), *_about(settings)),
    )


def _about(settings: Sequence[SettingArchive]) -> Iterator[str]:
    for setting in settings:
        yield from _staying_behind(f"the setting {setting.name}", setting.files)
        yield from warnings_about(setting)


def _staying_behind(what: str, archive: SourceArchive | None) -> list[str]:
    """What a person should know of the files that aren't shipped, in a line if there are any."""
    if archive is None or not archive.untracked:
        return []
    shown = ", ".join(archive.untracked[:10]) + (", …" if len(archive.untracked) > 10 else "")
    return [f"{len(archive.untracked)} untracked files of {what} stay behind (git add them to ship them): {shown}"]
