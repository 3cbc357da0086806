"""What a benchmark says: named figures, each with its target, kept from run to run, so that what moved can be told from noise."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).with_name("history.jsonl")
"""A line a run that was worth keeping, the latest last."""
QUIET = 0.05
"""A share by which any figure may differ on the same machine."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one run: the median of what was measured."""

    name: str
    values: tuple[float, ...]
    """Each time it was measured."""
    target: float
    at_least: bool = False
    """Whether the target is a lower bound; else an upper one."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """What it is made of, for a person."""

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        """Whether it is at its target or beyond."""
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def noise(self) -> float:
        """By how much its measurements differ."""
        return max(self.values) - min(self.values)

    def line(self) -> str:
        """As a person reads it."""
        sign, said = ("≥" if self.at_least else "≤"), "met" if self.met else "MISSED"
        parts = ", ".join(f"{name} {value:.4g}" for name, value in self.parts.items())
        return f"{self.name:24} {self.value:10.4g}   {sign} {self.target:<8g} {said:7}{parts}"

    def document(self) -> dict[str, Any]:
        """As `bench.json` and the history have it."""
        return {
            "value": self.value,
            "noise": self.noise,
            "target": self.target,
            "at_least": self.at_least,
            "met": self.met,
            "parts": dict(self.parts),
        }


@dataclass(frozen=True, slots=True)
class Known:
    """A figure as the history has it."""

    value: float
    """In the last kept run that measured it."""
    noise: float
    """By how much its measurements differed then, or its values in that and other kept runs of the same commit just before it:
    a machine has better and worse hours."""


Benchmark = Callable[[], Iterable[Figure]]
"""Measures some figures, and checks that the work which it timed was done right. SystemExit: it was not."""


def moved(figures: Sequence[Figure], before: Mapping[str, Known]) -> Iterator[str]:
    """A line for each figure that differs from the last kept run by more than its noise, and than `QUIET`."""
    for figure in figures:
        old = before.get(figure.name)
        if old is None:
            continue
        change = figure.value - old.value
        if abs(change) <= max(figure.noise, old.noise, QUIET * abs(old.value)):
            continue
        better = (change > 0) == figure.at_least
        yield f"{figure.name}: {old.value:.4g} before, {figure.value:.4g} now, {'better' if better else 'WORSE'}"


def kept(history: Path = HISTORY) -> Mapping[str, Known]:
    """Each figure of the history; a run needn't have measured all."""
    last: dict[str, tuple[str, list[Mapping[str, Any]]]] = {}
    for line in history.read_text().splitlines() if history.exists() else ():
        run = json.loads(line)
        for name, figure in run["figures"].items():
            commit, alike = last.get(name, ("", []))
            last[name] = (run["commit"], [*(alike if commit == run["commit"] else ()), figure])
    found = {}
    for name, (_, figures) in last.items():
        values = [figure["value"] for figure in figures]
        found[name] = Known(values[-1], max(figures[-1]["noise"], max(values) - min(values)))
    return found
