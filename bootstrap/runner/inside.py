"""Every name of Inspect that isn't public, in one place: an upgrade that moves one breaks this file and no other.

Why they are needed: the public `eval` takes a task by name but gives no sight of the samples and sandboxes it resolved;
these are the functions it calls itself, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from inspect_ai._eval.eval import eval_init, eval_resolve_tasks
from inspect_ai._eval.loader import load_file_tasks, parse_spec_str
from inspect_ai._util.entrypoints import ensure_entry_points
from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.registry import registry_find, registry_info, registry_lookup, registry_unqualified_name
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig

_MARKUP = re.compile(r"\[/?(?:bold|italic|dim|underline|red|green|blue|yellow|bright_black)\]")

__all__ = [
    "PrerequisiteError",
    "draw_nothing",
    "file_and_name",
    "load_file",
    "lookup",
    "parameters",
    "providers",
    "registered",
    "resolve",
    "said_by",
    "shared_files",
    "with_media",
    "without_metrics",
]


def registered(kind: str) -> list[str]:
    """Names of all registered objects of a kind, those of installed packages included."""
    ensure_entry_points()
    return sorted({registry_info(found).name for found in registry_find(lambda info: info.type == kind)})


def providers() -> list[str]:
    """Names of the model providers, as they stand before the slash of a model's name."""
    ensure_entry_points()
    found = registry_find(lambda info: info.type == "modelapi")
    return sorted({registry_unqualified_name(registry_info(provider)) for provider in found})


def lookup(kind: Any, name: str) -> Any:
    """The registered object of that name, or None."""
    return registry_lookup(kind, name)


def parameters(registered_object: Any) -> list[str]:
    """The parameters that a registered task takes."""
    return list(registry_info(registered_object).metadata.get("params", []))


def load_file(path: Path) -> None:
    """Import a file so that what it defines is registered."""
    load_file_tasks(path)


def file_and_name(spec: str) -> tuple[Path | None, str | None]:
    """`file.py@name` taken apart, as Inspect does it."""
    return parse_spec_str(spec)


def resolve(
    name: str,
    args: dict[str, Any],
    *,
    model: str,
    base_url: str | None,
    model_args: dict[str, Any],
    roles: dict[str, Any],
    generate: dict[str, Any],
    seed: int | None,
) -> list[Any]:
    """What `eval` makes of a task's name: tasks with their model and sandbox, their dataset shuffled by `seed`."""
    models = eval_init(model=model, model_base_url=base_url, model_args=model_args, **generate)
    resolved, _, _ = eval_resolve_tasks(
        tasks=name,
        task_args=args,
        models=models,
        model_roles=roles,
        config=GenerateConfig(**generate),
        approval=None,
        sandbox=None,
        sample_shuffle=seed,
    )
    return resolved


def said_by(error: PrerequisiteError) -> str:
    """What a PrerequisiteError says, on one line and without its markup."""
    said = error.message
    text = _MARKUP.sub("", said) if isinstance(said, str) else str(said)
    return " ".join(text.split()).removeprefix("ERROR: ")


def draw_nothing() -> None:
    """From now on no task's panel is laid out: by the display `none` it isn't seen, but drawn all the same.

    At the beginning and the end of each eval and every second between, for 15 ms of a processor each time.
    """
    try:
        from inspect_ai._display.rich import display
    except ImportError:  # a release that draws otherwise, and is slower here for it
        return
    for name in ("task_live_status", "tasks_live_status", "tasks_results"):
        if hasattr(display, name):
            setattr(display, name, lambda *_, **__: "")


def shared_files() -> AbstractAsyncContextManager[Any]:
    """What `eval` opens around `eval_async`: one file system client for the whole run."""
    try:
        from inspect_ai._util.asyncfiles import AsyncFilesystem
    except ImportError:
        return nullcontext()
    return AsyncFilesystem()


async def with_media(sample: Sample) -> Sample:
    """The sample with its images, audio, … inlined.

    Inspect does that for the samples a task starts with and not for those that are added while it runs, since code of the
    model could have made them. Ours are the dataset's own.
    """
    try:
        from inspect_ai._eval.task.images import capture_task_input_media, materialize_sample_input
    except ImportError:  # a release that inlines them all
        return sample
    return await materialize_sample_input(sample, capture_task_input_media([sample]))


@contextmanager
def without_metrics() -> Iterator[None]:
    """Within, a finished task computes no metrics: over a few samples of many they mean nothing, and some would raise."""
    from inspect_ai._eval.task import run
    from inspect_ai.log import EvalResults

    usual = getattr(run, "eval_results", None)
    if usual is None:  # a release that moved it: metrics of a job are then computed, and not used
        yield
        return

    def none(samples: int, *_: Any, **__: Any) -> tuple[EvalResults, None]:
        return EvalResults(total_samples=samples, completed_samples=samples), None

    run.eval_results = none  # type: ignore[attr-defined]
    try:
        yield
    finally:
        run.eval_results = usual  # type: ignore[attr-defined]
