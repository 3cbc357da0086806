"""A controller that is killed while its instances work: the reaper leaves the account as it was, and a live run beside it alone."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cloud import ELEMENTS, CloudUnderTest, finish, until

pytestmark = pytest.mark.cloud

SMALL = ("--samples-per-job", "2", "--ec2-arg", "max_workers=1", "--ec2-arg", "new_fleet=true", "--local-cloud")


def a_run(log_dir: Path, *more: str) -> tuple[str, ...]:
    return ("run", *ELEMENTS, *SMALL, "--json", "--log-dir", str(log_dir), *more)


def locks(cloud: CloudUnderTest) -> dict[str, tuple[str, dict[str, Any]]]:
    """Bucket, key and content of each lock there is, by the run that it names."""
    s3 = cloud.aws("s3")
    (bucket,) = (found["Name"] for found in s3.list_buckets()["Buckets"])
    found = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="inspect-fleet/evals/"):
        for each in page.get("Contents", []):
            if each["Key"].endswith("/lock.json"):
                content = json.loads(s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read())
                found[content["run"]] = (each["Key"], content)
    return found


def let_time_pass(cloud: CloudUnderTest, run: str) -> None:
    """Nobody has renewed this run's lock for long: what a quarter of an hour would do to it."""
    key, content = locks(cloud)[run]
    s3 = cloud.aws("s3")
    (bucket,) = (found["Name"] for found in s3.list_buckets()["Buckets"])
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps({**content, "expires": time.time() - 1_000}).encode())


def listed(cloud: CloudUnderTest) -> dict[str, dict[str, Any]]:
    """What `fleet list` says, by run."""
    done = cloud.fleet("list", "--json", **cast("Any", cloud.local.environment()))
    assert done.code == 0, done.err
    return {row["run"]: row for row in done.report["runs"]}


def owners(cloud: CloudUnderTest) -> set[str]:
    """The runs whose instances live."""
    tags = [{tag["Key"]: tag["Value"] for tag in one.get("Tags", [])} for one in cloud.living_instances()]
    return {each.get("inspect-fleet:run", "") for each in tags}


@pytest.fixture
def started(cloud: CloudUnderTest) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command, which doesn't outlive the test."""
    commands: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        commands.append(cloud.start(*arguments))
        return commands[-1]

    yield start
    for command in commands:
        command.kill()
        command.communicate()


@pytest.mark.fault("controller-killed", "leftovers", "reaper-meets-the-living")
def test_what_a_killed_controller_left_is_reaped_and_a_live_run_goes_on(
    cloud: CloudUnderTest, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Fault: SIGKILL to a controller. Nothing of its run is left; the other run keeps its instance, queues and lock."""
    environment: Any = cloud.local.environment()
    dead = started(*a_run(tmp_path / "dead", "-M", "latency=600", "--eval-arg", "limit=8"))
    alive = started(*a_run(tmp_path / "alive", "-M", "latency=600", "--eval-arg", "limit=6"))
    until("both runs' instances", lambda: len(owners(cloud)) == 2 or dead.poll() or alive.poll(), seconds=200)
    assert (dead.poll(), alive.poll()) == (None, None), finish(dead, seconds=1).err
    runs = cloud.flow_runs(state={"type": {"any_": ["RUNNING"]}}, name={"like_": "elements"})
    by_limit = {
        run["parameters"]["request"]["eval_config"]["limit"]: run["id"]
        for run in runs
        if run["parameters"].get("request")
    }
    killed, living = by_limit[8], by_limit[6]
    until("both locks", lambda: locks(cloud).keys() == {killed, living}, seconds=30)

    dead.send_signal(signal.SIGKILL)
    dead.wait()
    let_time_pass(cloud, killed)
    rows = listed(cloud)
    assert {run: rows[run]["controller"] for run in (killed, living)} == {killed: "gone", living: "alive"}
    assert rows[killed]["instances"] == {"on-demand c7i.4xlarge": 1}
    reaped = cloud.fleet("reap", "--now", "--yes", "--json", **environment)
    assert reaped.code == 0, reaped.err
    done = {(row["run"], row["done"]) for row in reaped.report["rows"]}
    assert done == {(killed, "removed"), (living, "kept")}

    assert owners(cloud) == {living}
    assert locks(cloud).keys() == {living}
    assert not [one for one in cloud.left_behind() if killed in one]
    assert cloud.state(killed)[0] == "CRASHED"
    assert alive.poll() is None
    stopped = cloud.fleet("stop", living[:8], **environment)
    assert stopped.code == 0, stopped.err
    assert finish(alive).code == 1
    assert locks(cloud) == {}
