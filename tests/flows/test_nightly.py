"""The nightly eval's description: read from a file or a variable, refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prefect.variables import Variable

from flows.nightly import ScheduleRefused, from_file, from_variable

REQUEST: dict[str, Any] = {"tasks": ["a/b"], "models": ["m/n"]}


def test_a_yaml_file_describes_a_run(tmp_path: Path) -> None:
    path = tmp_path / "nightly.yaml"
    path.write_text("request:\n  tasks: [a/b]\n  models: [m/n]\nconfig:\n  spot: true\nworker_secrets: keys\n")
    scheduled = from_file(path)
    assert scheduled.request.tasks[0].name == "a/b"
    assert scheduled.worker_secrets == "keys"
    assert (scheduled.config.spot, scheduled.config.auto_confirm) == (True, True)


@pytest.mark.parametrize("config", [None, {"max_workers": 3}])
def test_nobody_is_asked_at_night(config: dict[str, Any] | None, tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps({"request": REQUEST} | ({"config": config} if config else {})))
    assert from_file(path).config.auto_confirm


def test_who_wants_to_be_asked_says_so(tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps({"request": REQUEST, "config": {"auto_confirm": False}}))
    assert not from_file(path).config.auto_confirm


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("{a: [", "neither YAML nor JSON"),
        ("config: {}", "request: field required"),
        ("request: {tasks: [a/b], models: [m/n], taks: []}", "request.taks: extra inputs"),
        ("just text", "valid dictionary"),
    ],
)
def test_what_can_not_be_run_is_refused_with_the_place(content: str | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "nightly.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ScheduleRefused) as refusal:
        from_file(path)
    assert str(path) in str(refusal.value)
    assert why.lower() in str(refusal.value).lower()


@pytest.mark.parametrize("value", [{"request": REQUEST}, json.dumps({"request": REQUEST})], ids=["object", "text"])
def test_a_variable_describes_a_run(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Variable, "get", staticmethod(lambda name: value if name == "nightly_eval" else None))
    assert from_variable("nightly_eval").request.models[0].name == "m/n"
    with pytest.raises(ScheduleRefused, match="the variable other can't be run: there is no such variable"):
        from_variable("other")
