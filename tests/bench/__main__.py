"""`make bench`: ours beside the plain way, each pair measured in one run, as named figures with targets.

Prints them, says what moved since the run that was kept last, and writes `bench.json`. `--keep` adds the run to the history.
Names select: `python -m tests.bench merge cli`. 0: each target is met.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import HISTORY, Benchmark, Figure, kept, moved

PARTS = ("launch", "ratelimit", "cost", "merge", "controller", "job", "sample", "scaling", "start")
"""Modules of this package with a function `figures`, the quick ones first."""
OUT = Path("bench.json")


def main() -> int:
    """Measure one part after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all, if none is named")
    parser.add_argument("--keep", action="store_true", help="add this run to the history")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    found: list[Figure] = []
    for part in asked.parts or PARTS:
        measure: Benchmark = importlib.import_module(f"tests.bench.{part}").figures
        began = time.monotonic()
        for figure in measure():
            say(figure.line())
            found.append(figure)
        say(f"{'':24} ({part}: {time.monotonic() - began:.0f} s)")
    for line in moved(found, kept()):
        say(f"moved: {line}")
    run = {
        "commit": commit(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "figures": {figure.name: figure.document() for figure in found},
    }
    OUT.write_text(json.dumps(run, indent=2) + "\n")
    if asked.keep:
        with HISTORY.open("a") as history:
            history.write(json.dumps(run) + "\n")
    return 0 if all(figure.met for figure in found) else 1


def commit() -> str:
    """What is measured; with `-dirty` where the tree has other changes."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def say(line: str) -> None:
    """A line for the person who waits."""
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
