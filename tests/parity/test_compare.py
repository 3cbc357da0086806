"""The comparer sees what differs: it would be worth nothing if it passed everything."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.evals import merge_tasks
from tests.fleet.evals.merge_kit import run
from tests.parity.compare import compare

SAMPLE = "samples/s1_epoch_1.json"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(merge_tasks.plain_words(), tmp_path_factory.mktemp("log"))


def changed(log: Path, member: str, change: Callable[[Any], Any], folder: Path) -> Path:
    """A copy of the log with one member changed; gone, where the change answers None."""
    with zipfile.ZipFile(log) as old, zipfile.ZipFile(folder / "changed.eval", "w", 93) as new:
        for name in old.namelist():
            content = json.loads(old.read(name))
            if name == member:
                content = change(content)
            if content is not None:
                new.writestr(name, json.dumps(content))
    return folder / "changed.eval"


def at(*path: str | int, value: Any) -> Callable[[Any], Any]:
    def change(document: Any) -> Any:
        inner = document
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value
        return document

    return change


CHANGES = {
    "status": ("header.json", at("status", value="error")),
    "total": ("header.json", at("results", "total_samples", value=20)),
    "metric": ("header.json", at("results", "scores", 0, "metrics", "accuracy", "value", value=0.7142857142857144)),
    "config": ("header.json", at("eval", "config", "fail_on_error", value=1)),
    "dataset": ("header.json", at("eval", "dataset", "samples", value=8)),
    "scorers": ("header.json", at("eval", "scorers", value=[])),
    "plan": ("header.json", at("plan", "steps", value=[])),
    "usage in all": ("header.json", at("stats", "model_usage", "parrot/one", "input_tokens", value=41)),
    "reduction": ("reductions.json", at(0, "samples", 0, "value", value=True)),
    "no reductions": ("reductions.json", lambda _: None),
    "score": (SAMPLE, at("scores", "match", "value", value="I")),
    "answer": (SAMPLE, at("scores", "match", "answer", value="w2")),
    "explanation": (SAMPLE, at("scores", "match", "explanation", value=None)),
    "target": (SAMPLE, at("target", value="w2")),
    "input": (SAMPLE, at("input", value="w2")),
    "message": (SAMPLE, at("messages", 1, "content", value="w2")),
    "fewer messages": (SAMPLE, at("messages", value=[])),
    "metadata": (SAMPLE, at("metadata", "n", value=1.0)),
    "usage": (SAMPLE, at("model_usage", "parrot/one", "total_tokens", value=6)),
    "fewer events": (SAMPLE, at("events", value=[])),
    "start": ("_journal/start.json", at("eval", "model", value="parrot/two")),
    "a sample less": ("summaries.json", lambda summaries: summaries[1:]),
    "summary": ("summaries.json", at(0, "scores", "match", "value", value="N")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_one_value_is_a_difference(what: str, log: Path, tmp_path: Path) -> None:
    member, change = CHANGES[what]
    other = changed(log, member, change, tmp_path)
    found = compare(log, other, order=False)
    assert len(found.differences) >= 1
    assert all(str(difference) for difference in found.differences)


def test_a_log_equals_itself_and_what_must_differ_is_passed_over(log: Path, tmp_path: Path) -> None:
    """Names of the run, and times."""
    other = changed(log, "header.json", at("eval", "run_id", value="another"), tmp_path)
    other = changed(other.rename(tmp_path / "a.eval"), SAMPLE, at("total_time", value=99.0), tmp_path)
    found = compare(log, other)
    assert found.differences == []
    assert found.count > 1000
    assert found.passed_over["names this run and no other"] > 20
