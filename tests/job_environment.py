"""The job environment of `tests/fixtures/evalkit`, built once and kept between test runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bootstrap.environment import JobEnvironment, build, resolve
from fleet.evals.request import EvalRequest
from fleet.evals.source import SourceArchive, pack

KIT = Path(__file__).parent / "fixtures" / "evalkit"


@cache
def kit_source(folder: Path) -> SourceArchive:
    """The kit as a packed source, in `folder`."""
    return pack(KIT, folder)


@cache
def kit_environment(folder: Path) -> JobEnvironment:
    """An environment with the kit installed, below `folder` (pytest's cache: `config.cache.mkdir("job-environments")`)."""
    source = kit_source(folder)
    spec = resolve([], source, None, cache=folder)
    return build(spec, cache=folder, artifact=lambda _: source.path)


def kit_request(*tasks: str, **fields: object) -> EvalRequest:
    """A request for tasks of the kit (by bare name, or `file.py@task`) with its scripted model."""
    named = [task if "@" in task or "/" in task else f"evalkit/{task}" for task in tasks]
    return EvalRequest.model_validate({"tasks": named, "models": ["kit/model"], **fields})
