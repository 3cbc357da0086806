"""What the artifacts of a run say."""

from __future__ import annotations

from fleet.evals.progress import WorkerRow
from flows.artifacts import LINKS, cells, instances, links

LOST = WorkerRow("worker 2 of small-cat", "i-2", "lost", 3, 6, 1, "", 1.5, "terminated:\nno | capacity", "run-2")


def test_a_worker_is_called_by_its_number_alone() -> None:
    """Its run stands above the table."""
    assert cells(LOST)["worker"] == "worker 2"


def test_each_worker_is_a_link_to_its_steps() -> None:
    assert "[worker 2](../../runs/flow-run/run-2)" in links([LOST])
    assert links([LOST] * (LINKS + 1)).count("worker 2") == LINKS


def test_a_reason_does_not_break_the_table() -> None:
    last = instances([LOST]).splitlines()[-1]
    assert last.endswith("| terminated: no / capacity |")
    assert last.count("|") == 8


def test_a_run_without_instances_has_no_table() -> None:
    assert instances([]) == ""
