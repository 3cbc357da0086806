"""What a deployment's services do to runs when they die or fall silent: the pool worker, Prefect's server. No job is lost to it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from fleet.local import state
from fleet.local.faults import FaultKit
from fleet.local.process_ref import ProcessRef
from fleet.local.state import Part
from tests.cloud import ELEMENTS, CloudUnderTest, Finished, finish, until
from tests.faults.moments import locks

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

JOBS = 8
AWAY_S = 20.0
LONG_AWAY_S = 75.0
"""More than the minute that one request of Prefect's client waits for its answer."""


def a_run(log_dir: Path, latency: float) -> tuple[str, ...]:
    return (
        *("run", *ELEMENTS, "-M", f"latency={latency}", "--eval-arg", f"limit={JOBS}", "--samples-per-job", "1"),
        *("--ec2-arg", "max_workers=2", "--ec2-arg", "concurrency_per_worker=1", "--ec2-arg", "new_fleet=true"),
        *("--local-cloud", "--json", "--log-dir", str(log_dir)),
    )


def part(cloud: CloudUnderTest, name: str) -> Part:
    """One of the cloud's processes, as its supervisor sees it."""
    known = state.read(cloud.local.folder)
    assert known is not None
    return known.parts[name]


def process(cloud: CloudUnderTest, name: str) -> ProcessRef:
    found = part(cloud, name).process
    assert found is not None
    return found


def results(cloud: CloudUnderTest) -> int:
    """Jobs done of the one run that holds a lock."""
    return sum(len(cloud.keys(f"{lock.removesuffix('lock.json')}jobs/")) for lock in locks(cloud))


def launched(cloud: CloudUnderTest, run: str) -> list[str]:
    """Every instance that was launched for a run, whatever became of it."""
    mine = [{"Name": "tag:inspect-fleet:run", "Values": [run]}]
    found = cloud.aws("ec2").describe_instances(Filters=mine)["Reservations"]
    return [instance["InstanceId"] for reservation in found for instance in reservation["Instances"]]


def expect_untouched(cloud: CloudUnderTest, done: Finished) -> None:
    """Each sample once, by one attempt, from the two instances that were launched first; nothing left."""
    assert done.code == 0, done.err
    report: dict[str, Any] = done.report
    assert (report["outcome"], report["instances"], report["left"]) == ("success", 2, [])
    (one,) = report["evals"]
    assert (one["samples_done"], one["missing"]) == (JOBS, 0)
    samples = Counter(sample.id for sample in read_eval_log(one["log"]).samples or [])
    assert (len(samples), set(samples.values())) == (JOBS, {1})
    workers = cloud.workers_of(report["run"])
    assert [worker["state"]["type"] for worker in workers] == ["COMPLETED", "COMPLETED"], done.err
    assert [worker["run_count"] for worker in workers] == [1, 1]
    assert len(launched(cloud, report["run"])) == 2
    assert cloud.keys(f"inspect-fleet/evals/{one['eval_id']}/failures/") == []
    assert cloud.keys(f"inspect-fleet/evals/{one['eval_id']}/partial/") == []
    assert cloud.left_behind() == []


@pytest.fixture
def silenced(cloud: CloudUnderTest) -> Iterator[list[ProcessRef]]:
    """Processes that a test has stopped: none is left so."""
    stopped: list[ProcessRef] = []
    yield stopped
    for each in stopped:
        each.signal(signal.SIGCONT)


def working(cloud: CloudUnderTest, log_dir: Path, latency: float) -> subprocess.Popen[str]:
    """A run both of whose instances are at work."""
    command = cloud.start(*a_run(log_dir, latency))
    until("a job of each instance is done", lambda: results(cloud) >= 2 or command.poll(), seconds=240)
    assert command.poll() is None, finish(command).err
    assert len(cloud.living_instances()) == 2
    assert cloud.processes(), "what is to be gone later is seen now"
    return command


def stay_away(cloud: CloudUnderTest, silenced: list[ProcessRef], seconds: float) -> None:
    """Prefect's server answers nobody for so long, and is then started anew at its address, with its database."""
    server = process(cloud, "server")
    restarts = part(cloud, "server").restarts
    silenced.append(server)
    server.signal(signal.SIGSTOP)
    time.sleep(seconds)
    server.signal(signal.SIGKILL)
    until("another server", lambda: (now := part(cloud, "server")).restarts > restarts and now.ready, seconds=60)
    silenced.clear()


@pytest.mark.long
@pytest.mark.fault("pool-worker-dies")
@pytest.mark.fault("no-answer")
def test_a_run_outlives_its_pool_worker_and_a_silent_prefect_server(
    cloud: CloudUnderTest, silenced: list[ProcessRef], tmp_path: Path
) -> None:
    """Fault: SIGKILL to the pool worker under two instances that work; the next one finds the server silent, which is restarted
    20 s later. Each sample is done once, no instance is ended or launched anew, nothing is left."""
    command = working(cloud, tmp_path, latency=4)
    before = part(cloud, "workers").restarts
    process(cloud, "workers").signal(signal.SIGKILL)
    stay_away(cloud, silenced, AWAY_S)
    expect_untouched(cloud, finish(command))
    assert part(cloud, "workers").restarts > before


TRIES = 4
"""One more than the SDK makes."""


@pytest.mark.exhaustive
@pytest.mark.fault("no-answer")
def test_a_run_is_planned_prepared_and_collected_though_aws_refuses_each_step_for_a_while(
    cloud: CloudUnderTest, tmp_path: Path
) -> None:
    """Fault: AWS is too busy, or has trouble of its own, at each step of the controller, once for longer than the SDK tries.
    Each step is begun again; each job is sent once, each sample is there, nothing is left."""
    kit = FaultKit(cloud.local.aws_endpoint)
    busy = {"times": TRIES, "code": "SlowDown", "status": 503}
    for operation, match in (
        ("DescribeImages", ""),
        ("ListObjectsV2", "jobs"),
        ("PutObject", "lock.json"),
        ("PutObject", "manifest.json"),
        ("PutObject", "/merged/"),
        ("CreateQueue", "-events"),
        ("SendMessageBatch", "-work"),
    ):
        kit.fault(operation, match=match, **busy)
    try:
        done = cloud.fleet(*a_run(tmp_path, latency=0), seconds=280)
        struck = kit.hits()
    finally:
        kit.clear()
    assert struck == [TRIES] * 7
    for step in ("look-at-image", "estimate", "prepare", "send-jobs", "store-log"):
        assert f"{step}: " in done.err
    assert "It is tried again, for 5 minutes at most" in done.err
    expect_untouched(cloud, done)


@pytest.mark.exhaustive
@pytest.mark.fault("pool-worker-dies")
def test_a_pool_worker_that_is_killed_under_a_run_finds_its_instances_again(
    cloud: CloudUnderTest, tmp_path: Path
) -> None:
    """Fault: SIGKILL to the pool worker while two instances work. The next one watches them: none is ended, none launched anew."""
    command = working(cloud, tmp_path, latency=4)
    instances = [one["InstanceId"] for one in cloud.living_instances()]
    log = Path(part(cloud, "workers").log)
    read = log.stat().st_size
    process(cloud, "workers").signal(signal.SIGKILL)
    expect_untouched(cloud, finish(command))
    said = log.read_text()[read:]
    assert [one for one in instances if f"Watching instance {one} of flow run" not in said] == []


@pytest.mark.exhaustive
@pytest.mark.fault("no-answer")
def test_a_prefect_server_that_is_away_for_a_minute_while_jobs_are_done_costs_none(
    cloud: CloudUnderTest, silenced: list[ProcessRef], tmp_path: Path
) -> None:
    """Fault: the server is silent while both instances work and end, then restarted. No job is lost, no worker given up."""
    command = working(cloud, tmp_path, latency=3)
    stay_away(cloud, silenced, LONG_AWAY_S)
    expect_untouched(cloud, finish(command))


@pytest.mark.exhaustive
@pytest.mark.fault("no-answer")
def test_a_prefect_server_that_is_away_while_instances_boot_costs_none(
    cloud: CloudUnderTest, silenced: list[ProcessRef], tmp_path: Path
) -> None:
    """Fault: the server is silent for more than a minute from the launch on. Instances wait for it with their first steps."""
    command = cloud.start(*a_run(tmp_path, latency=1))
    until("two instances", lambda: len(cloud.living_instances()) == 2 or command.poll(), seconds=240)
    stay_away(cloud, silenced, LONG_AWAY_S)
    expect_untouched(cloud, finish(command))
