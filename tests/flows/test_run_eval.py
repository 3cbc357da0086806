"""Whole runs: the command, a real Prefect server, instances as processes, one log in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalLog, read_eval_log

from tests.checkouts import git, setting_kit
from tests.cloud import ELEMENTS, LONG_S, CloudUnderTest, Finished, finish, until

pytestmark = pytest.mark.cloud

SMALL = ("--eval-arg", "limit=24", "--eval-arg", "epochs=2", "--samples-per-job", "4", "--ec2-arg", "max_workers=2")


def a_run(*more: str, log_dir: Path) -> tuple[str, ...]:
    return ("run", *ELEMENTS, *SMALL, "--local-cloud", "--json", "--log-dir", str(log_dir), *more)


def pairs(log: EvalLog) -> list[tuple[Any, int]]:
    return [(sample.id, sample.epoch) for sample in log.samples or []]


def expect_complete(log: EvalLog, *, samples: int, epochs: int) -> None:
    """Each (sample, epoch) exactly once, and a result over all of them."""
    found = pairs(log)
    assert len(found) == len(set(found)) == samples * epochs
    assert log.status == "success"
    assert log.results is not None
    assert log.results.total_samples == log.results.completed_samples == samples * epochs


def test_an_eval_runs_on_two_instances_and_leaves_one_log(cloud: CloudUnderTest, tmp_path: Path) -> None:
    done = cloud.fleet(*a_run("--ec2-arg", "new_fleet=true", log_dir=tmp_path))
    assert done.code == 0, done.err
    report = done.report
    assert report["outcome"] == "success"
    assert report["instances"] == 2
    assert report["left"] == []
    (one,) = report["evals"]
    assert (one["samples"], one["samples_done"], one["missing"]) == (48, 48, 0)
    assert {metric["name"] for metric in one["metrics"]} >= {"accuracy", "stderr"}

    expect_complete(read_eval_log(one["log"]), samples=24, epochs=2)

    workers = cloud.workers_of(report["run"])
    assert [worker["state"]["type"] for worker in workers] == ["COMPLETED", "COMPLETED"]
    steps = cloud.steps(workers[0]["id"], among=["install-code", "run-jobs"])
    assert steps == {"install-code": "COMPLETED", "run-jobs": "COMPLETED"}
    artifacts = cloud.prefect("artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [report["run"]]}}})
    assert {artifact["key"] for artifact in artifacts} >= {
        "eval-progress",
        "fleet-workers",
        "eval-report",
        "eval-metrics",
    }

    # What its samples took is kept: one that starts over is told how long it would take.
    again = cloud.fleet(*a_run("--ec2-arg", "new_fleet=true", "--ec2-arg", "estimate=true", log_dir=tmp_path))
    fleets, _, kinds = again.report["why"].partition("\n\n")
    line, _, *fleet_sizes = fleets.splitlines()
    assert line.startswith("48 samples on 2 × ")
    assert line.endswith(" by earlier runs")
    assert [size.split()[0] for size in fleet_sizes] == ["1", "2"]
    assert fleet_sizes[1].endswith("this one")
    _, *instance_sizes, _ = kinds.splitlines()
    named = [size.split()[0] for size in instance_sizes]
    assert named == ["c7i.xlarge", "c7i.2xlarge", "c7i.4xlarge", "c7i.8xlarge"]
    assert "this one" in instance_sizes[2]


def test_the_same_request_runs_nothing_twice(cloud: CloudUnderTest, tmp_path: Path) -> None:
    """Its task comes from a setting's plugin, and finds the setting's files, commit, environment and values on an instance."""
    checkout = setting_kit(tmp_path)
    (tmp_path / "settingkit.env").write_text("TOKEN=of-the-setting\n")
    request = ("settingkit_plugin/directions", "--model", "mockllm/model", "--setting", str(checkout), "--local-cloud")

    def run(number: str) -> Finished:
        return cloud.fleet("run", *request, "--samples-per-job", "2", "--json", "--log-dir", str(tmp_path / number))

    first = run("1")
    git(checkout, "gc", "--quiet")  # the same commit, packed by git in another way
    again = run("2")
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert (first.report["instances"], again.report["instances"]) == (1, 0)
    assert again.report["evals"][0]["eval_id"] == first.report["evals"][0]["eval_id"]
    logs = [read_eval_log(done.report["evals"][0]["log"]) for done in (first, again)]
    assert pairs(logs[0]) == pairs(logs[1])
    assert logs[0].eval.eval_id == logs[1].eval.eval_id
    expect_complete(logs[0], samples=4, epochs=1)
    found = [score.metadata for sample in logs[0].samples or [] for score in (sample.scores or {}).values()]
    assert found == [{"subject": "work", "changed": "", "own_environment": True, "values": 21}] * 4
    (worker,) = cloud.workers_of(first.report["run"])
    assert "of-the-setting" not in cloud.logs(worker["id"])


@pytest.mark.fault("cancelled")
def test_a_run_cancelled_in_the_ui_ends_at_once(cloud: CloudUnderTest, tmp_path: Path) -> None:
    before = cloud.stored("jobs")
    command = cloud.start(*a_run("-M", f"latency={LONG_S}", "--ec2-arg", "new_fleet=true", log_dir=tmp_path))
    until("two instances", lambda: len(cloud.living_instances()) == 2, seconds=90)
    run = cloud.newest_run()
    assert run
    cloud.prefect(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": False})
    until("no instance", lambda: not cloud.living_instances(), seconds=LONG_S)
    assert cloud.stored("jobs") == before, "before a job is done"
    done = finish(command)
    assert done.code == 1
    assert "was cancelled" in done.err
    assert cloud.prefect(f"flow_runs/{run}")["state"]["type"] == "CANCELLED"
