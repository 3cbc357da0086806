"""How the tests of each fault ended: a plugin of pytest's, for the process that hears the reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest


@dataclass(slots=True)
class Ran:
    """One test. `lost` and `left` are there for a whole run only: `tests/conftest.py` counts them after each."""

    faults: list[str]
    outcome: str = "passed"
    seconds: float = 0.0
    lost: int | None = None
    left: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """All tests of one fault."""

    tests: tuple[Ran, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether a test ran, and none failed."""
        outcomes = {one.outcome for one in self.tests}
        return "passed" in outcomes and "failed" not in outcomes

    @property
    def seconds(self) -> float:
        """Of all its tests together."""
        return sum(one.seconds for one in self.tests)

    def __str__(self) -> str:
        counts = {kind: sum(one.outcome == kind for one in self.tests) for kind in ("failed", "passed", "skipped")}
        whole = [one for one in self.tests if one.left is not None]
        text = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "no test ran"
        if not whole:
            return text
        lost, left = sum(one.lost or 0 for one in whole), sum(one.left or 0 for one in whole)
        return f"{text}; whole runs: {len(whole)}, with {lost} lost and {left} left"


@dataclass(slots=True)
class Recorder:
    """Hears of every test, wherever xdist has it run: a fault's key travels among the properties of the test's report."""

    tests: dict[str, Ran] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """Files that could not be imported: whose tests they hold is not known."""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take in what can't be run at all."""
        if report.failed:
            self.unread.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one phase of one test."""
        said = dict(report.user_properties)
        faults = [str(value) for name, value in report.user_properties if name == "fault"]
        ran = self.tests.setdefault(report.nodeid, Ran(faults))
        ran.seconds += report.duration
        if report.outcome == "failed" or (report.outcome == "skipped" and ran.outcome == "passed"):
            ran.outcome = report.outcome
        ran.lost, ran.left = (int(str(said[name])) if name in said else None for name in ("lost", "left"))

    def outcomes(self, keys: Iterable[str]) -> Mapping[str, Outcome]:
        """By fault."""
        return {key: Outcome(tuple(one for one in self.tests.values() if key in one.faults)) for key in keys}
