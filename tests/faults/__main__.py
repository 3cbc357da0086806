"""`make faults`: the tests of each fault in `docs/faults.md`, fast ones first, then whole runs. What came of it goes there."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence

import pytest
from rich.console import Console
from rich.table import Table

from tests.faults.recorder import Outcome, Recorder
from tests.faults.table import PAGE, ROOT, Fault, brought_up_to_date, faults, held

WHOLE = "(cloud or docker or browser)"
CUT_SHORT = {pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR}


def main() -> int:
    """0: every fault that was asked for has a test that passed, and none that failed."""
    listed = faults(PAGE.read_text())
    asked = arguments([fault.key for fault in listed])
    recorder = Recorder()
    codes = []
    if not asked.list:
        chosen = " or ".join(f"fault:{key}" for key in asked.fault)
        by_key = held()
        files = sorted({name for key in asked.fault or by_key for name in by_key.get(key, [])})
        for which in (f"fault and not {WHOLE}", f"fault and {WHOLE}"):
            words = ["-m", f"{which} and not hawk", "-k", chosen, "-n", str(asked.jobs), "--dist", "worksteal"]
            codes.append(pytest.main([*words, *(str(ROOT / name) for name in files)], plugins=[recorder]))
    outcomes = recorder.outcomes([] if asked.list else asked.fault or [fault.key for fault in listed])
    show(listed, outcomes)
    if recorder.unread or not CUT_SHORT.isdisjoint(codes):
        print("Not all tests ran, so that nothing was written down.", *sorted(set(recorder.unread)), sep="\n  ")  # noqa: T201
        return 1
    results = {key: str(outcome) for key, outcome in outcomes.items()}
    # Read again: whole runs take minutes, in which somebody may have written in it.
    PAGE.write_text(brought_up_to_date(PAGE.read_text(), held(), results))
    return 0 if all(outcome.holds for outcome in outcomes.values()) else 1


def arguments(keys: Sequence[str]) -> argparse.Namespace:
    """What may be said on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("fault", nargs="*", help="keys of rows; by default all of them")
    parser.add_argument("-n", "--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--list", action="store_true", help="run nothing: bring the files in the page up to date")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.fault) - set(keys)):
        parser.error(f"no such fault: {', '.join(unknown)}")
    return asked


def show(listed: Sequence[Fault], outcomes: Mapping[str, Outcome]) -> None:
    """The table, for whoever waited."""
    table = Table("fault", "expectation", "result", show_lines=True)
    for fault in listed:
        outcome = outcomes.get(fault.key)
        result = f"{outcome}\n{outcome.seconds:.0f} s" if outcome else fault.result
        style = "" if outcome is None or outcome.holds else "bold red"
        table.add_row(f"{fault.key}\n{fault.event}", fault.expectation, result, style=style)
    Console(width=max(shutil.get_terminal_size().columns, 140), highlight=False, markup=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
