"""Killing a flow run's infrastructure terminates an instance that a pool launched, and nothing else."""

from __future__ import annotations

import anyio
import pytest
from prefect.exceptions import InfrastructureNotAvailable, InfrastructureNotFound
from prefect.states import Cancelling

from fleet.aws.instances import Instances
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import REGION
from tests.fleet.pool.worker_bench import Bench

pytestmark = pytest.mark.usefixtures("quiet_prefect")


def kill(bench: Bench, pid: str) -> None:
    anyio.run(bench.worker.kill_infrastructure, pid, bench.configuration())


def test_killing_terminates_the_recorded_instance(bench: Bench, aws: Aws) -> None:
    async def story() -> None:
        await bench.worker.kill_infrastructure(bench.status.values[0], bench.configuration())

    bench.run(story)
    assert bench.running == []
    kill(bench, bench.status.values[0])  # again: no error


def test_killing_an_unknown_instance_says_so(bench: Bench) -> None:
    with pytest.raises(InfrastructureNotFound):
        kill(bench, f"{REGION}::i-0123456789abcdef0")


def test_killing_what_was_launched_just_now_and_is_not_shown_yet_is_left_to_the_watch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Describe answers InvalidInstanceID.NotFound for some seconds after a launch; that is no instance that is gone."""

    async def story() -> None:
        monkeypatch.setattr(Instances, "get", lambda *_: None)
        await bench.worker.kill_infrastructure(bench.status.values[0], bench.configuration())
        bench.prefect.go_to(Cancelling())

    bench.run(story)
    assert bench.prefect.end[0] == "Cancelled"
    assert bench.running == []


@pytest.mark.parametrize("pid", ["4711", "", "container-id", "us-east-1::nonsense"])
def test_killing_what_is_no_instance_is_refused(bench: Bench, pid: str) -> None:
    with pytest.raises(InfrastructureNotAvailable):
        kill(bench, pid)


def test_an_instance_that_no_pool_launched_is_never_terminated(bench: Bench, aws: Aws) -> None:
    launched = aws.ec2.run_instances(ImageId=bench.image["ImageId"], MinCount=1, MaxCount=1)["Instances"][0]
    with pytest.raises(InfrastructureNotAvailable):
        kill(bench, f"{REGION}::{launched['InstanceId']}")
    found = bench.ec2.get(launched["InstanceId"])
    assert found is not None
    assert not found.leaving
