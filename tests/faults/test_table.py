"""`docs/faults.md` is true: it has every row, each is held by the tests that it names, and they passed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.recorder import Recorder
from tests.faults.table import ASKED, PAGE, Fault, brought_up_to_date, faults, held

ROWS = faults(PAGE.read_text())
KEYS = [row.key for row in ROWS]


def test_each_fault_is_held_by_a_test_and_each_marker_names_a_fault() -> None:
    assert len(set(KEYS)) == len(KEYS)
    assert sorted(set(KEYS) - held().keys()) == [], "no test has a marker for it"
    assert sorted(held().keys() - set(KEYS)) == [], "no row has this key"


def test_every_event_that_was_asked_about_has_its_rows() -> None:
    assert sorted({key for keys in ASKED.values() for key in keys} - set(KEYS)) == []
    assert len(ASKED) == 20


def test_the_page_names_the_files_that_hold_each_fault() -> None:
    page = PAGE.read_text()
    assert page == brought_up_to_date(page, held(), {}), "`python -m tests.faults --list` mends it"


@pytest.mark.parametrize("row", ROWS, ids=KEYS)
def test_each_fault_says_what_is_expected_and_its_tests_were_seen_to_pass(row: Fault) -> None:
    assert row.event
    assert row.expectation
    assert "passed" in row.result, "`make faults` runs it"
    assert "failed" not in row.result


def whole_runs() -> Iterator[tuple[ast.FunctionDef, str]]:
    """The tests of this folder that run an eval on the local cloud, each with its marks."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        body = ast.parse(path.read_text()).body
        of_file = " ".join(ast.unparse(node) for node in body if ast.unparse(node).startswith("pytestmark = "))
        for node in body if "mark.cloud" in of_file else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node, " ".join([of_file, *map(ast.unparse, node.decorator_list)])


@pytest.mark.parametrize(("test", "marks"), list(whole_runs()), ids=lambda it: getattr(it, "name", ""))
def test_each_whole_run_states_its_fault_and_counts_what_is_lost_and_left(test: ast.FunctionDef, marks: str) -> None:
    assert re.match("Faults?: ", ast.get_docstring(test) or "")
    assert "cloud" in [argument.arg for argument in test.args.args], "this fixture counts, after the test"
    assert "mark.fault" in marks


PAGE_OF_TWO = """# A page

| key | fault | expectation | held by | result |
|---|---|---|---|---|
| `a` | it rains | an umbrella | `old.py` | 1 passed |
| `b` | it snows | a shovel |  |  |
"""


def test_a_page_gets_its_last_columns_and_keeps_the_rest() -> None:
    assert brought_up_to_date(PAGE_OF_TWO, {"a": ["x.py", "y.py"]}, {"b": "3 passed"}).splitlines()[-2:] == [
        "| `a` | it rains | an umbrella | `x.py`, `y.py` | 1 passed |",
        "| `b` | it snows | a shovel |  | 3 passed |",
    ]


def report(node: str, when: str, outcome: str, *said: tuple[str, object]) -> pytest.TestReport:
    return pytest.TestReport(
        node,
        (node, 1, node),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=None,
        when=when,  # type: ignore[arg-type]
        duration=1.0,
        user_properties=[("fault", "a"), *said],
    )


def test_what_is_lost_or_left_after_a_run_is_counted_and_fails_its_fault() -> None:
    """The clean-up of a test comes after its word that it passed."""
    recorder = Recorder()
    for when in ("setup", "call", "teardown"):
        recorder.pytest_runtest_logreport(report("fast", when, "passed"))
    assert str(recorder.outcomes("ab")["a"]) == "1 passed"
    assert recorder.outcomes("ab")["a"].holds
    assert (recorder.outcomes("ab")["b"].holds, str(recorder.outcomes("ab")["b"])) == (False, "no test ran")

    recorder.pytest_runtest_logreport(report("whole", "call", "passed"))
    recorder.pytest_runtest_logreport(report("whole", "teardown", "failed", ("lost", 2), ("left", 1)))
    recorder.pytest_runtest_logreport(report("docker", "setup", "skipped"))
    outcome = recorder.outcomes("a")["a"]
    assert str(outcome) == "1 failed, 1 passed, 1 skipped; whole runs: 1, with 2 lost and 1 left"
    assert (outcome.holds, outcome.seconds) == (False, 6.0)
