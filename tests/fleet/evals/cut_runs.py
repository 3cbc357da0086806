"""A run, cut into the results of jobs; what can be read of it, and what can be changed in one result. No test in here."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inspect_ai import Task
from inspect_ai.log import read_eval_log

from tests.fleet.evals import merge_tasks as tasks
from tests.fleet.evals.merge_kit import Pair, cut_job, job_name, plan, run
from tests.parity.compare import compare


def finished(folder: Path) -> tuple[Path, Path]:
    """A plain log and the plan log of a task whose metrics depend on order and whose scores hold NaN."""

    def make() -> Task:
        return Task(
            dataset=tasks.words(6), solver=tasks.raises_at(4), scorer=[tasks.numbers(), tasks.measures()], epochs=2
        )

    options = {"fail_on_error": False}
    return run(make(), folder / "plain", **options), plan(make(), folder / "plan", **options)


def pairs_of(plan_log: Path) -> list[Pair]:
    """All samples and epochs, in plan order."""
    spec = read_eval_log(str(plan_log), header_only=True).eval
    return [
        (name, epoch) for epoch in range(1, (spec.config.epochs or 1) + 1) for name in spec.dataset.sample_ids or []
    ]


def differences(plain: Path, merged: Path, **options: Any) -> list[str]:
    return [str(difference) for difference in compare(plain, merged, **options).differences]


def cut(done: tuple[Path, Path], folder: Path, size: int = 4) -> tuple[Path, list[list[Pair]], list[Path]]:
    """The run in `done`, as jobs of `size` samples."""
    plain, plan_log = done
    pairs = pairs_of(plan_log)
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return plan_log, parts, [cut_job(plain, part, job_name(number), folder) for number, part in enumerate(parts)]


def samples_of(log: Path) -> Sequence[Any]:
    return read_eval_log(str(log)).samples or []


def without(log: Path, name: str) -> None:
    rewrite(log, lambda member, content: None if member == name else content)


def edit(log: Path, name: str, change: tuple[str, str]) -> None:
    old, new = (part.encode() for part in change)
    rewrite(log, lambda member, content: content.replace(old, new, 1) if member == name else content)


def rewrite(log: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    with zipfile.ZipFile(log) as old:
        members = {name: change(name, old.read(name)) for name in old.namelist()}
    with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            if content is not None:
                new.writestr(name, content)
