"""Whole runs on a scripted Hawk deployment: the command, a real Prefect server, one log in the end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud import CloudUnderTest, finish, until
from tests.hawk_server import TOKEN, HawkServer, Launch, State, eval_log, hawk_server

pytestmark = pytest.mark.cloud

TASK, MODEL = "inspect_evals/gpqa_diamond", "openai/gpt-5"


@pytest.fixture
def hawk() -> Iterator[HawkServer]:
    with hawk_server() as server:
        yield server


def start(cloud: CloudUnderTest, hawk: HawkServer, log_dir: Path) -> subprocess.Popen[str]:
    """A run on that deployment, with the cloud's Prefect server."""
    return cloud.start(
        *("run", TASK, "--model", MODEL, "--package", "inspect-evals", "--package", "openai"),
        *("--backend", "hawk", "--json", "--log-dir", str(log_dir)),
        HAWK_API_URL=hawk.address,
        HAWK_ACCESS_TOKEN=TOKEN,
        PREFECT_API_URL=cloud.local.prefect_api,
    )


def test_a_run_on_hawk_is_seen_in_prefect_and_leaves_its_log(
    cloud: CloudUnderTest, hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.launches = [Launch([State("running", 1, 2), "complete"], {"1.eval": eval_log(TASK, MODEL)})]
    done = finish(start(cloud, hawk, tmp_path))
    assert done.code == 0, done.err
    report = done.report
    assert (report["outcome"], report["instances"], report["left"]) == ("success", None, [])
    assert Path(report["evals"][0]["log"]).parent == tmp_path
    run = report["run"]
    assert cloud.state(run)[0] == "COMPLETED"
    steps = {"map", "submit", "follow", "collect", "deliver"}
    assert cloud.steps(run, among=steps).keys() == steps
    artifacts = cloud.prefect("artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
    by_key = {artifact["key"]: artifact for artifact in artifacts}
    assert by_key.keys() == {"eval-progress", "hawk-tasks", "eval-report", "eval-metrics"}
    assert "(https://viewer.hawk.example.org/eval-set/" in by_key["eval-report"]["data"]
    assert "instance" not in by_key["eval-report"]["data"]
    assert cloud.workers_of(run) == []

    # The same command finds everything there.
    again = finish(start(cloud, hawk, tmp_path))
    assert (again.code, len(hawk.posted)) == (0, 1), again.err


@pytest.mark.fault("hawk-cancelled")
def test_a_run_on_hawk_that_is_cancelled_in_the_ui_ends_its_eval_set(
    cloud: CloudUnderTest, hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.launches = [Launch([State("running", 1, 2)])]
    command = start(cloud, hawk, tmp_path)
    until("the eval set at work", lambda: hawk.asked("eval-set-status") > 0, seconds=90)
    run = cloud.newest_run()
    assert run
    cloud.prefect(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": False})
    done = finish(command)
    assert done.code == 1
    assert "was cancelled: cancelled by a person" in done.err
    assert hawk.stops == [{"action": "error"}]
    assert cloud.state(run)[0] == "CANCELLED"
