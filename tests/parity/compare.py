"""Two Inspect logs of the same eval, compared value by value as they lie in their files.

Everything that a log says is compared except what `UNEQUAL` lists, the one place for what can't be equal between two
runs, each with its reason. Used by the merge's tests and by `python -m tests.parity`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries

from fleet.evals.eval_file import HEADER, REDUCTIONS, START, EvalFile, sample_member

UNEQUAL: Mapping[str, Sequence[str]] = {
    "names this run and no other": (
        "header.eval.eval_id",
        "header.eval.run_id",
        "header.eval.task_id",
        "sample.uuid",
        "summary.uuid",
        "sample.input.*.id",
        "summary.input.*.id",
        "sample.messages.*.id",
        "sample.output.choices.*.message.id",
    ),
    "says when, or how long": (
        "header.eval.created",
        "header.stats.started_at",
        "header.stats.completed_at",
        "sample.started_at",
        "sample.completed_at",
        "sample.total_time",
        "sample.working_time",
        "sample.output.time",
        "summary.started_at",
        "summary.completed_at",
        "summary.total_time",
        "summary.working_time",
    ),
    "says how many connections a process had open": ("header.stats.connection_limit_history.**",),
    "is a transcript, made of ids and times; how many events of each kind it has is compared": (
        "sample.events.**",
        "sample.error_retries.*.events.**",
        "sample.error_retries.*.events_data.**",
        "sample.events_data.**",
        "sample.timelines.**",
        "sample.attachments.**",
    ),
}
"""Why, and which values: `*` stands for one part of a path, `.**` at its end for all that lies below."""

COST_TOLERANCE = 1e-9
"""Relative. A sum of floats depends on its order, and a plain run adds costs up in the order in which calls ended."""

_ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs."""

    path: str
    plain: Any
    fleet: Any

    def __str__(self) -> str:
        return f"{self.path}: plain {_short(self.plain)}, fleet {_short(self.fleet)}"


@dataclass(slots=True)
class Comparison:
    """What a comparison looked at and found."""

    fields: dict[str, int] = field(default_factory=dict)
    """Values compared, by the part of the log they belong to."""
    passed_over: dict[str, int] = field(default_factory=dict)
    """Values not compared, by the reason."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def count(self) -> int:
        """All values compared."""
        return sum(self.fields.values())


def compare(
    plain: Path, fleet: Path, *, order: bool = True, unequal: Mapping[str, Sequence[str]] | None = None
) -> Comparison:
    """Compare the log of a plain run with a merged one.

    `order`: also the order in which readers give the samples. `unequal`: more values that can't be equal for this task.
    """
    walk = _Walk(
        [(re.compile(_regex(p)), why) for group in (UNEQUAL, unequal or {}) for why in group for p in group[why]]
    )
    with EvalFile(plain) as one, EvalFile(fleet) as other:
        for name in (START, HEADER, REDUCTIONS):
            documents = [json.loads(log.read(name)) if name in log else _ABSENT for log in (one, other)]
            walk("header" if name != REDUCTIONS else "reductions", name, *documents)
        pairs = [_pairs(plain), _pairs(fleet)]
        walk("samples", "samples", *(sorted(side, key=str) for side in pairs))
        for sample_id, epoch in sorted(set(pairs[0]) & set(pairs[1]), key=str):
            samples = [json.loads(log.read(sample_member(sample_id, epoch))) for log in (one, other)]
            walk("sample", f"sample {sample_id} epoch {epoch}", *samples)
            walk("event counts", f"events of sample {sample_id} epoch {epoch}", *(_kinds(sample) for sample in samples))
    summaries = [{(one.id, one.epoch): one for one in read_eval_log_sample_summaries(log)} for log in (plain, fleet)]
    for pair in sorted(summaries[0].keys() & summaries[1].keys(), key=str):
        sides = [side[pair].model_dump(mode="python") for side in summaries]
        walk("summary", f"summary of sample {pair[0]} epoch {pair[1]}", *sides)
    if order:
        walk("order", "order of samples", _read_order(plain), _read_order(fleet))
    return walk.found


def _pairs(log: Path) -> list[tuple[int | str, int]]:
    return [(one.id, one.epoch) for one in read_eval_log_sample_summaries(log)]


def _read_order(log: Path) -> list[list[int | str]]:
    """The samples in the order in which Inspect's reader gives them."""
    return [[sample.id, sample.epoch] for sample in read_eval_log(log).samples or []]


def _kinds(sample: dict[str, Any]) -> dict[str, int]:
    return dict(Counter(event["event"] for event in sample.get("events", [])))


class _Walk:
    """Walks two documents side by side and keeps the book."""

    def __init__(self, passes: Sequence[tuple[re.Pattern[str], str]]) -> None:
        self.passes = passes
        self.found = Comparison()

    def __call__(self, kind: str, label: str, plain: Any, fleet: Any) -> None:
        for path, one, other in _leaves((), plain, fleet):
            names = [kind, *("*" if isinstance(part, int) else part for part in path)]
            why = next((why for pattern, why in self.passes if pattern.fullmatch(".".join(names))), None)
            if why is not None:
                self.found.passed_over[why] = self.found.passed_over.get(why, 0) + 1
                continue
            book = ".".join(names[:2])
            self.found.fields[book] = self.found.fields.get(book, 0) + 1
            if not _equal(names[-1], one, other):
                self.found.differences.append(Difference(".".join(map(str, (label, *path))), one, other))


def _leaves(path: tuple[str | int, ...], plain: Any, fleet: Any) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    if isinstance(plain, dict) and isinstance(fleet, dict) and (plain or fleet):
        for key in dict.fromkeys([*plain, *fleet]):
            yield from _leaves((*path, str(key)), plain.get(key, _ABSENT), fleet.get(key, _ABSENT))
    elif isinstance(plain, list) and isinstance(fleet, list) and len(plain) == len(fleet) and plain:
        for number, (one, other) in enumerate(zip(plain, fleet, strict=True)):
            yield from _leaves((*path, number), one, other)
    else:
        yield path, plain, fleet


def _regex(pattern: str) -> str:
    """`*` stands for one part of a path; `.**` at its end for all that lies below."""
    below = pattern.endswith(".**")
    parts = ["[^.]*" if part == "*" else re.escape(part) for part in pattern.removesuffix(".**").split(".")]
    return r"\.".join(parts) + (r"(\..*)?" if below else "")


def _equal(name: str, one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        if name == "total_cost":
            return math.isclose(one, other, rel_tol=COST_TOLERANCE)
    return type(one) is type(other) and bool(one == other)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "…"
