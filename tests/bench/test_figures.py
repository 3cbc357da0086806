"""Targets, noise, and what moved."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.figures import Figure, Known, kept, moved


def test_a_target_is_a_bound_from_its_side() -> None:
    assert Figure("speedup", (16.0,), 15, at_least=True).met
    assert not Figure("speedup", (14.0,), 15, at_least=True).met
    assert Figure("seconds", (0.3,), 0.4).met
    assert not Figure("seconds", (0.5,), 0.4).met


def test_the_median_counts() -> None:
    assert Figure("seconds", (9.0, 1.0, 2.0), 3).value == 2.0


def test_what_differs_by_less_than_the_noise_did_not_move() -> None:
    before = {"a": Known(1.15, 0.3)}
    assert list(moved([Figure("a", (1.3,), 2)], before)) == []
    assert list(moved([Figure("a", (1.6,), 2)], before)) == ["a: 1.15 before, 1.6 now, WORSE"]
    assert list(moved([Figure("a", (0.5,), 2)], before)) == ["a: 1.15 before, 0.5 now, better"]
    assert list(moved([Figure("a", (0.5, 1.5, 0.6), 2)], before)) == [], "its own noise counts too"
    assert list(moved([Figure("new", (0.5,), 2)], before)) == []


def test_the_history_knows_each_figure_as_it_was_last_and_by_how_much_it_moves_by_itself(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    runs = [
        ("old", {"a": Figure("a", (9.0,), 9)}),
        ("new", {"a": Figure("a", (1.0,), 9), "b": Figure("b", (2.0, 2.5, 2.25), 9)}),
        ("new", {"a": Figure("a", (1.5,), 9)}),
        ("new", {"a": Figure("a", (1.25,), 9)}),
    ]
    lines = [
        {"commit": commit, "figures": {name: figure.document() for name, figure in run.items()}} for commit, run in runs
    ]
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert kept(history) == {"a": Known(1.25, 0.5), "b": Known(2.25, 0.5)}, "a step from commit to commit is no noise"
    assert kept(tmp_path / "none") == {}
