"""The nightly eval's description: read from a file or a block, refused in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.client.schemas.objects import State
from prefect.states import Completed

from blocks.scheduled_eval import ScheduledEval
from fleet.evals.request import EvalRequest
from flows import nightly as room
from flows.nightly import ScheduleRefused, from_block, from_file
from tests.cloud import EXAMPLES, CloudUnderTest, until

FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
REQUEST: dict[str, Any] = {"tasks": ["a/b"], "models": ["m/n"]}
HAWK = {"backend": "hawk", "hawk": "team"}


def test_a_yaml_file_describes_a_run(tmp_path: Path) -> None:
    path = tmp_path / "nightly.yaml"
    path.write_text("request:\n  tasks: [a/b]\n  models: [m/n]\nconfig:\n  spot: true\nworker_secrets: keys\n")
    scheduled = from_file(path)
    assert scheduled.request.tasks[0].name == "a/b"
    assert scheduled.worker_secrets == "keys"
    assert (scheduled.config.spot, scheduled.config.auto_confirm) == (True, True)


@pytest.mark.parametrize(("more", "where"), [({}, ("fleet", "default")), (HAWK, ("hawk", "team"))])
def test_it_runs_where_its_description_says(
    more: dict[str, Any], where: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps({"request": REQUEST, **more}))
    came: State[Any] = Completed(message="all there")
    called: list[Any] = []

    def run_eval(*parameters: Any, return_state: bool) -> Any:
        called.extend(parameters)
        return came

    monkeypatch.setattr(room, "run_eval", run_eval)
    assert room.nightly.fn(str(path)).message == "all there"
    assert tuple(called[-2:]) == where
    block = ScheduledEval.model_validate({"request": REQUEST, **more})
    assert (block.backend, block.hawk) == where


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


@pytest.mark.cloud
def test_a_block_describes_a_run(cloud: CloudUnderTest) -> None:
    """Kept by a real server and found again; the deployment `nightly` runs it, here as far as its estimate."""
    request = EvalRequest.model_validate(
        {
            "tasks": ["fleet_examples/elements"],
            "models": ["scripted/chemist"],
            "source": str(EXAMPLES),
            "eval_config": {"limit": 2},
        }
    )
    keep = (
        "from blocks.scheduled_eval import ScheduledEval; import sys; "
        "ScheduledEval.model_validate_json(sys.argv[1]).save('nightly', overwrite=True)"
    )
    content = json.dumps({"request": request.model_dump(mode="json"), "config": {"estimate": True}})
    environment = {**cloud.environment(), **cloud.local.environment()}
    subprocess.run([sys.executable, "-c", keep, content], env=environment, check=True)

    deployment = cloud.prefect("deployments/name/nightly/nightly")["id"]
    run = cloud.prefect(f"deployments/{deployment}/create_flow_run", {})["id"]
    ended = until(
        "the nightly run's end",
        lambda: next((one for one in cloud.flow_runs(id={"any_": [run]}) if one["state"]["type"] in FINAL), None),
        seconds=120,
    )
    assert ended["state"]["type"] == "COMPLETED"
    assert "2 samples on 1" in ended["state"]["message"]


@pytest.mark.parametrize(
    ("error", "why"), [(ValueError("Unable to find block document"), "no such block")], ids=["absent"]
)
def test_a_block_that_is_not_there_is_refused(error: Exception, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise error

    monkeypatch.setattr(ScheduledEval, "load", staticmethod(load))
    with pytest.raises(ScheduleRefused, match=f"the block scheduled-eval/other can't be run: there is {why}"):
        from_block("other")


def test_the_block_asks_nobody_at_night() -> None:
    assert ScheduledEval.model_validate({"request": REQUEST}).config.auto_confirm
