"""Runs that can't go on end by themselves, keep what they have, and say why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.checkouts import made
from tests.cloud import ELEMENTS, CloudUnderTest, finish, until

pytestmark = pytest.mark.cloud

SHIFTING = """
import os
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match

@task
def shifting():
    return Task([Sample(f"{n} in process {os.getpid()}", target="x", id=n) for n in range(6)], scorer=match())
"""
"""A task whose samples are others in each process: no attempt of a job can do those that were planned."""


@pytest.mark.fault("failing-jobs")
def test_a_run_whose_every_job_fails_ends_with_the_top_errors(cloud: CloudUnderTest, tmp_path: Path) -> None:
    """Fault: every job fails for good. The run says so, and its log names each job's reason."""
    source = made(tmp_path / "source", {"tasks.py": SHIFTING})
    done = cloud.fleet(
        *("run", "tasks.py@shifting", "--model", "mockllm/model", "--source", str(source), "--samples-per-job", "1"),
        *("--ec2-arg", "max_workers=1", "--local-cloud", "--json", "--log-dir", str(tmp_path / "logs")),
    )
    assert done.code == 3, done.err
    report = done.report
    assert (report["outcome"], report["left"]) == ("incomplete", [])
    assert "of 6 jobs failed for good: SampleChanged: sample " in report["why"]
    assert "Results are kept; the same request tries the failed jobs again" in report["why"]
    state, message = cloud.state(report["run"])
    assert state == "FAILED"
    assert "SampleChanged" in message

    (one,) = report["evals"]
    log = read_eval_log(one["log"])
    assert (log.status, one["missing"]) == ("error", 6)
    assert log.error is not None
    assert "SampleChanged: sample 0, task" in log.error.message
    (record, *_) = sorted(cloud.keys(f"inspect-fleet/evals/{one['eval_id']}/failures/"))
    failure = json.loads(cloud.aws("s3").get_object(Bucket=preset.BUCKET, Key=record)["Body"].read())
    (worker,) = cloud.workers_of(report["run"])
    assert (failure["kind"], failure["final"], failure["worker"]) == ("SampleChanged", True, worker["name"])
    assert "Traceback" in failure["log"]


@pytest.mark.fault("no-capacity")
def test_a_run_without_capacity_anywhere_ends_with_what_ec2_said_of_each_place(
    cloud: CloudUnderTest, tmp_path: Path
) -> None:
    """Fault: EC2 has no room for any type, in any zone, on either market. Nothing was launched, and no result is made up."""
    kit = FaultKit(cloud.local.aws_endpoint)
    kit.room(0)
    try:
        done = cloud.fleet(
            *("run", *ELEMENTS, "--eval-arg", "limit=4", "--samples-per-job", "2", "--ec2-arg", "new_fleet=true"),
            *("--ec2-arg", "max_workers=2", "--ec2-arg", "spot=true"),
            *("--local-cloud", "--json", "--log-dir", str(tmp_path)),
        )
    finally:
        kit.clear()
    assert done.code == 3, done.err
    report = done.report
    assert (report["outcome"], report["instances"], report["left"]) == ("incomplete", 0, [])
    why, _, *candidates = report["why"].splitlines()
    assert why.startswith("no instance is left for 2 open jobs: no capacity in us-east-1: all ")
    assert why.endswith(" candidates were refused. More instance types or subnets give more candidates.")
    assert {line.split()[2] for line in candidates} == {"spot", "on-demand"}
    assert all("InsufficientInstanceCapacity: " in line for line in candidates)
    assert report["why"].endswith(". Results are kept, and the same request goes on from them")
    state, message = cloud.state(report["run"])
    assert (state, "no capacity in us-east-1" in message) == ("FAILED", True)
    (one,) = report["evals"]
    assert (read_eval_log(one["log"]).status, one["samples_done"], one["missing"]) == ("error", 0, 4)


@pytest.mark.exhaustive
@pytest.mark.fault("fewer-instances")
def test_a_run_goes_on_with_the_instances_that_there_is_room_for(cloud: CloudUnderTest, tmp_path: Path) -> None:
    """Fault: room for one of three instances. Every sample is done on that one."""
    kit = FaultKit(cloud.local.aws_endpoint)
    kit.room(1)
    try:
        done = cloud.fleet(
            *("run", *ELEMENTS, "--eval-arg", "limit=6", "--samples-per-job", "1", "--ec2-arg", "new_fleet=true"),
            *("--ec2-arg", "max_workers=3", "--ec2-arg", "concurrency_per_worker=1"),
            *("--local-cloud", "--json", "--log-dir", str(tmp_path)),
        )
    finally:
        kit.clear()
    assert done.code == 0, done.err
    report = done.report
    (one,) = report["evals"]
    assert (one["samples_done"], one["missing"], report["instances"], report["left"]) == (6, 0, 1, [])
    states = [worker["state"] for worker in cloud.workers_of(report["run"])]
    assert sorted(state["type"] for state in states) == ["COMPLETED", "CRASHED", "CRASHED"]
    refused = [state["message"] for state in states if state["type"] == "CRASHED"]
    assert all(message.startswith("no capacity in us-east-1: all ") for message in refused)


@pytest.mark.fault("login-ends")
def test_a_login_that_expires_midway_ends_the_run_and_the_same_request_finishes(
    cloud: CloudUnderTest, tmp_path: Path
) -> None:
    """Fault: AWS takes no credentials of the controller any more, not for its clean-up either; those of instances stay good."""
    request = (
        *("run", *ELEMENTS, "-M", "latency=2", "--eval-arg", "limit=6", "--samples-per-job", "2"),
        *("--ec2-arg", "max_workers=1", "--ec2-arg", "concurrency_per_worker=1"),
        *("--local-cloud", "--json", "--log-dir", str(tmp_path)),
    )
    before = cloud.stored("jobs")
    command = cloud.start(*request)
    until("a job is done", lambda: cloud.stored("jobs") - before or command.poll(), seconds=120)
    kit = FaultKit(cloud.local.aws_endpoint)
    expired = {"times": None, "code": "ExpiredToken", "status": 403, "message": "The security token is expired"}
    kit.fault("ReceiveMessage", match="-events", **expired)
    for operation in ("DeleteQueue", "DeleteObject"):
        kit.fault(operation, **expired)
    try:
        ended = finish(command, seconds=60)
    finally:
        kit.clear()
    assert ended.code == 1
    assert "AWS login ended while the run went on: " in ended.err
    assert "ExpiredToken: The security token is expired. Renew the AWS credentials" in ended.err
    assert "the same request goes on" in ended.err
    *queues, lock = cloud.left_behind()
    assert lock.endswith("/lock.json")
    assert len(queues) == 3
    assert all(f"left behind: queue {queue}" in ended.err for queue in queues), "and no instance is"
    for queue in queues:
        cloud.aws("sqs").delete_queue(QueueUrl=queue)

    again = cloud.fleet(*request)
    assert again.code == 0, again.err
    (one,) = again.report["evals"]
    assert (one["samples_done"], one["missing"]) == (6, 0)
    workers = cloud.workers_of(again.report["run"])
    assert not any("; 3 jobs done" in one["state"]["message"] for one in workers), "what was done is not run again"
