"""EC2 takes a spot instance back while it works."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from bootstrap.notices import MARGIN_SECONDS
from fleet.local import preset
from fleet.local.faults import FaultKit
from fleet.pool.order import FLOW_RUN_TAG
from tests.cloud import ELEMENTS, CloudUnderTest, finish, until

pytestmark = pytest.mark.cloud

SAMPLES = 12
NOTICE = MARGIN_SECONDS - 1
"""Seconds; fewer than what is kept for the end, so that no job fits."""


@pytest.mark.fault("spot-notice", "result-damaged")
def test_an_interrupted_instance_gives_its_jobs_back_and_is_replaced(cloud: CloudUnderTest, tmp_path: Path) -> None:
    """Faults: a spot notice to the only instance, amid its jobs; and a result is cut short that it has put.

    Every sample is there once, no attempt was counted, and of what was finished only the job of that result ran again.
    """
    done_before, failures_before, unusable_before = (cloud.stored(kind) for kind in ("jobs", "failures", "unusable"))
    fleet = ("max_workers=1", "spot=true", "concurrency_per_worker=3", "new_fleet=true")
    command = cloud.start(
        *("run", *ELEMENTS, "-M", "latency=2.5", "--eval-arg", f"limit={SAMPLES}", "--samples-per-job", "1"),
        *(word for option in fleet for word in ("--ec2-arg", option)),
        *("--local-cloud", "--json", "--log-dir", str(tmp_path)),
    )
    until("a job is done", lambda: cloud.stored("jobs") - done_before or command.poll(), seconds=120)
    assert command.poll() is None, finish(command).err
    spoiled = min(cloud.stored("jobs") - done_before)
    whole = cloud.aws("s3").get_object(Bucket=preset.BUCKET, Key=spoiled)["Body"].read()
    cloud.aws("s3").put_object(Bucket=preset.BUCKET, Key=spoiled, Body=whole[: len(whole) // 2])
    (instance,) = cloud.living_instances()
    assert instance["InstanceLifecycle"] == "spot"
    FaultKit(cloud.local.aws_endpoint).interrupt(instance["InstanceId"], notice=NOTICE)
    worker = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}[FLOW_RUN_TAG]
    assert cloud.wait_for(worker, "COMPLETED", seconds=NOTICE)[0] == "COMPLETED", "before the instance's end"

    done = finish(command)
    assert done.code == 0, done.err
    first, second = cloud.workers_of(done.report["run"])
    assert [first["state"]["name"], second["state"]["name"]] == ["Interrupted", "Completed"]
    assert first["id"] == worker
    assert first["state"]["message"].startswith("EC2 takes this instance back (terminate at 2")
    given = re.search(r"(\d+) in flight given back", first["state"]["message"])
    assert given, first["state"]["message"]
    assert f"jobs in flight that were given back: {given[1]}" in cloud.logs(first["id"])
    (one,) = done.report["evals"]
    log = read_eval_log(one["log"])
    assert log.status == "success"
    assert Counter(sample.id for sample in log.samples or []).most_common(1)[0][1] == 1
    assert len(log.samples or []) == SAMPLES
    assert cloud.stored("failures") == failures_before
    (aside,) = cloud.stored("unusable") - unusable_before
    job = spoiled.rsplit("/", 1)[1].removesuffix(".eval")
    assert f"/unusable/{job}/" in aside
    assert f"The result of job {job} can't be used and runs again: it is truncated" in cloud.logs(done.report["run"])
    counts = [re.search(r"; (\d+) jobs? done", worker["state"]["message"]) for worker in (first, second)]
    assert sum(int(count[1]) for count in counts if count) == SAMPLES + 1
