"""The list of faults: the rows of `docs/faults.md`.

What a fault is and what is expected are written there by hand, once. The files that hold it, and how its tests ended, are put
beside them by `make faults`. A test holds a fault by the marker `fault` with the row's key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
MARKED = re.compile(r"\bmark\.fault\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Fault:
    """One row."""

    key: str
    event: str
    expectation: str
    held_by: str = ""
    """Test files, as the page shows them."""
    result: str = ""
    """What came of the tests when they last ran."""

    def line(self) -> str:
        """The row, as it stands in the page."""
        return f"| `{self.key}` | {self.event} | {self.expectation} | {self.held_by} | {self.result} |"


def faults(page: str) -> list[Fault]:
    """The rows of the page's table. ValueError: a line of the table isn't one of five columns that begins with a key."""
    found = []
    for line in page.splitlines():
        if line.startswith("| `"):
            key, event, expectation, held_by, result = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Fault(key.strip("`"), event, expectation, held_by, result))
    return found


def held() -> dict[str, list[str]]:
    """Test files by the key of each fault that a marker in them names. Read, not imported: importing them all takes long."""
    files: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for keys in MARKED.findall(path.read_text()):
            for key in re.findall(r'"([^"]+)"', keys):
                names = files.setdefault(key, [])
                if (name := path.relative_to(ROOT).as_posix()) not in names:
                    names.append(name)
    return files


def brought_up_to_date(page: str, held: Mapping[str, Iterable[str]], results: Mapping[str, str]) -> str:
    """The page with the files that hold each fault, and the results of those that were run."""
    by_key = {fault.key: fault for fault in faults(page)}
    lines = []
    for line in page.splitlines():
        key = line.split("`")[1] if line.startswith("| `") else ""
        if key:
            fault = by_key[key]
            line = replace(
                fault,
                held_by=", ".join(f"`{name}`" for name in held.get(key, [])),
                result=results.get(key, fault.result),
            ).line()
        lines.append(line)
    return "\n".join(lines) + "\n"


ASKED: Mapping[str, tuple[str, ...]] = {
    "AMI parameter missing, AMI absent, malformed, not available, wrong architecture": ("ami-unfit",),
    "no capacity for a candidate (type, zone, market)": ("no-capacity",),
    "fewer instances than asked": ("fewer-instances",),
    "throttled (EC2, SSM)": ("throttled",),
    "secret can't be written for an instance": ("secret-refused",),
    "secret not there yet: ParameterNotFound or AccessDenied": ("secret-late",),
    "boot fails": ("boot-fails",),
    "no boot within the deadline": ("boot-fails",),
    "spot notice": ("spot-notice",),
    "instance dies": ("instance-dies", "poison-job"),
    "sample error, task error": ("sample-fails", "job-fails"),
    "rate limit": ("rate-limit",),
    "host: Docker unhealthy, disk or inodes full, memory low": ("host-bad", "host-stays-bad"),
    "more than 20% of jobs failing for good, or every first job failing": ("failing-jobs",),
    "no completions for long, no live workers": ("stall", "no-workers"),
    "controller killed": ("controller-killed", "leftovers"),
    "duplicate delivery": ("duplicate-delivery",),
    "truncated, empty or unfinished result object": ("result-damaged",),
    "run cancelled in the UI": ("cancelled",),
    "partial results": ("samples-missing",),
}
"""The events that the project was asked to survive, in the words in which it was asked, and the rows that do."""
