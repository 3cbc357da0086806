"""Runs that a person starts: in the UI's form and with `prefect deployment run`, approved, declined and cancelled in the UI.

A real browser, a real Prefect server, a local cloud with controllers; what is asserted is what the person sees, and what lies
in the bucket.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalLog, read_eval_log
from playwright.sync_api import expect

from tests.cloud import EXAMPLES, LONG_S, CloudUnderTest, until
from tests.ui.prefect_ui import PrefectUI

pytestmark = [pytest.mark.cloud, pytest.mark.browser]

BUCKET = "inspect-fleet-123456789012-us-east-1"
SAMPLES = 24
REQUEST: dict[str, Any] = {
    "tasks": [{"name": "fleet_examples/elements"}],
    "models": [{"name": "scripted/chemist"}],
    "source": str(EXAMPLES),
    "eval_config": {"limit": SAMPLES},
}
CONFIG: dict[str, Any] = {"max_workers": 2, "concurrency_per_worker": 2, "new_fleet": True}
APPROVED = {**CONFIG, "auto_confirm": True}


def start_in_form(ui: PrefectUI, cloud: CloudUnderTest, request: dict[str, Any], config: dict[str, Any]) -> str:
    form = ui.run_form(cloud.prefect("deployments/name/run-eval/run-eval")["id"])
    form.fill({"request": request, "config": config})
    return form.submit()


def log_of(cloud: CloudUnderTest, run: str, folder: Path) -> EvalLog:
    """The one log that a run has put into the bucket."""
    (eval_id,) = cloud.workers_of(run)[0]["parameters"]["order"]["eval_ids"]
    s3 = cloud.aws("s3")
    merged = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"inspect-fleet/evals/{eval_id}/merged/")["Contents"]
    (key,) = [one["Key"] for one in merged]
    to = folder / key.rpartition("/")[2]
    s3.download_file(BUCKET, key, str(to))
    return read_eval_log(str(to))


def expect_all_samples(log: EvalLog) -> None:
    assert log.status == "success"
    assert len({sample.id for sample in log.samples or []}) == len(log.samples or []) == SAMPLES


def busiest(cloud: CloudUnderTest, run: str) -> str:
    """The worker that has done the most jobs, by its name in the report: one that boots late may have had none."""
    said = {
        worker["name"]: re.search(r"(\d+) jobs? done", worker["state"]["message"]) for worker in cloud.workers_of(run)
    }
    return str(max(said, key=lambda name: int(found[1]) if (found := said[name]) else 0)).partition(" of ")[0]


@pytest.mark.long
def test_a_run_started_in_the_form_waits_for_approval_and_can_be_followed_to_its_log(
    ui: PrefectUI, cloud: CloudUnderTest, tmp_path: Path
) -> None:
    run = start_in_form(ui, cloud, REQUEST, CONFIG)
    assert cloud.wait_for(run, "PAUSED")[0] == "PAUSED"
    assert cloud.left_behind() == []

    said = ui.resume(run)
    assert f"{SAMPLES} samples on 2 × c7i.4xlarge" in said
    assert "Switched off, the run ends here" in said
    assert cloud.wait_for(run, "COMPLETED") == ("COMPLETED", f"{SAMPLES} of {SAMPLES} samples, accuracy 1")
    expect_all_samples(log_of(cloud, run, tmp_path))

    ui.flow_run(run, "Subflow Runs")
    for subflow in ("check AMI in us-east-1", "launch 2 instances", re.compile("^collect elements-")):
        expect(ui.page.get_by_role("link", name=subflow)).to_be_visible()
    expect(ui.page.get_by_text("elements on chemist").first).to_be_visible()
    ui.flow_run(run, "Artifacts")
    for artifact in ("cost-estimate", "eval-progress", "fleet-workers", "eval-report", "eval-metrics"):
        expect(ui.page.get_by_text(artifact, exact=True).first).to_be_visible()

    ui.page.get_by_text("eval-report", exact=True).first.click()
    ui.wait_for_text("inspect view --log-dir")
    ui.page.get_by_role("link", name=busiest(cloud, run)).click()
    expect(ui.page.get_by_role("tab", name="Task Runs")).to_be_visible()
    ui.page.get_by_role("tab", name="Task Runs").click()
    expect(ui.page.get_by_role("link", name="install-code", exact=True)).to_be_visible()
    ui.page.get_by_role("link", name="run-jobs", exact=True).click()
    ui.wait_for_text("taking jobs: ")
    ui.wait_for_text("jobs done")


def test_a_run_started_with_the_prefect_command_delivers_its_log(cloud: CloudUnderTest, tmp_path: Path) -> None:
    parameters = {"request": REQUEST, "config": APPROVED}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "prefect", "deployment", "run", "run-eval/run-eval"),
            *("--params", json.dumps(parameters), "--flow-run-name", "baseline", "--watch"),
        ],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "AWS_"))},
            **cloud.local.environment(),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = cloud.flow_runs(name={"any_": ["elements on chemist · baseline"]})
    assert run["state"]["type"] == "COMPLETED"
    expect_all_samples(log_of(cloud, run["id"], tmp_path))
    assert {worker["name"] for worker in cloud.workers_of(run["id"])} == {
        "worker 1 of baseline",
        "worker 2 of baseline",
    }


def test_a_person_who_declines_has_created_nothing(ui: PrefectUI, cloud: CloudUnderTest) -> None:
    run = start_in_form(ui, cloud, REQUEST, CONFIG)
    cloud.wait_for(run, "PAUSED")
    ui.resume(run, {"Launch the instances": False})
    assert cloud.wait_for(run, "COMPLETED") == (
        "COMPLETED",
        "declined: a person decided against the launch",
    )
    assert cloud.workers_of(run) == []


@pytest.mark.fault("cancelled")
def test_a_run_cancelled_on_its_page_takes_its_instances_with_it(ui: PrefectUI, cloud: CloudUnderTest) -> None:
    slow = {**REQUEST, "models": [{"name": "scripted/chemist", "args": {"latency": LONG_S}}]}
    before = cloud.stored("jobs")
    run = start_in_form(ui, cloud, slow, APPROVED)
    until("two instances", lambda: len(cloud.living_instances()) == 2, seconds=90)
    ui.cancel(run)
    until("no instance", lambda: not cloud.living_instances(), seconds=LONG_S)
    assert cloud.stored("jobs") == before, "before a job is done"
    assert cloud.wait_for(run, "CANCELLED", seconds=60)[0] == "CANCELLED"
    until("nothing left", lambda: not cloud.left_behind(), seconds=30)
