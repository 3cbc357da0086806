"""The pool worker against the emulator, with a small Prefect server in memory: what it launches is recorded or gone."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from prefect.client.schemas.objects import State
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_KEY,
    PREFECT_SERVER_DATABASE_CONNECTION_URL,
    temporary_settings,
)
from prefect.states import Cancelling, Completed, Running

from fleet.aws.hunt import Member
from fleet.aws.instances import Instance
from fleet.aws.session import Aws
from fleet.pool.access import Access
from fleet.pool.launch_desk import group_name
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG
from tests.fleet.aws.conftest import REGION, fail
from tests.fleet.pool.worker_bench import API, Bench

pytestmark = pytest.mark.usefixtures("quiet_prefect")


def test_an_instance_lost_from_outside_crashes_its_flow_run_with_the_reason(bench: Bench, aws: Aws) -> None:
    seen: list[Instance] = []

    async def story() -> None:
        seen.extend(bench.running)
        bench.prefect.go_to(Running())
        aws.ec2.terminate_instances(InstanceIds=[seen[0].id])

    result = bench.run(story)
    assert bench.status.values == [f"{REGION}::{seen[0].id}"] == [result.identifier]
    assert result.status_code == 0
    assert bench.prefect.states[0].name == "InfrastructurePending"
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert message.startswith(f"{seen[0].id}: the instance is gone: it was terminated from outside (")
    assert bench.running == []


def test_the_instance_is_what_was_asked_for(bench: Bench, aws: Aws) -> None:
    found: list[Any] = []
    script: list[str] = []

    async def story() -> None:
        (instance,) = bench.running
        found.append(aws.ec2.describe_instances(InstanceIds=[instance.id])["Reservations"][0]["Instances"][0])
        answer = aws.ec2.describe_instance_attribute(InstanceId=instance.id, Attribute="userData")
        script.append(base64.b64decode(answer["UserData"]["Value"]).decode())
        bench.prefect.go_to(Cancelling())

    bench.run(story, bench.configuration(tags={"team": "evals", POOL_TAG: "no"}, env={"TZ": "UTC"}, max_hours=3))
    tags = {tag["Key"]: tag["Value"] for tag in found[0]["Tags"]}
    assert tags["team"] == "evals"
    assert tags["Name"] == "worker 1"
    assert tags["LaunchedBy"]
    assert tags[FLOW_RUN_TAG] == str(bench.flow_run.id)
    assert tags[POOL_TAG] == str(bench.pool.id)
    assert tags["inspect-fleet:launch"] == group_name([Member(str(bench.flow_run.state_id), {})])
    assert found[0]["BlockDeviceMappings"][0]["DeviceName"] == bench.image["RootDeviceName"]
    assert f"export PREFECT__FLOW_RUN_ID={bench.flow_run.id}\n" in script[0]
    assert f"export PREFECT_API_URL={API}\n" in script[0]
    assert "export TZ=UTC\n" in script[0]
    assert "export FLEET_LIFETIME_MINUTES=180\n" in script[0]
    assert "set -- fleet-python -m prefect.engine\n" in script[0]


def test_a_run_that_is_cancelled_loses_its_instance_and_is_cancelled(bench: Bench) -> None:
    async def story() -> None:
        bench.prefect.go_to(Cancelling())

    bench.run(story)
    assert bench.prefect.end[0] == "Cancelled"
    assert bench.running == []
    assert len(bench.instances) == 1


def test_of_the_pool_workers_settings_only_the_apis_address_goes_along(bench: Bench) -> None:
    secret = {
        PREFECT_API_AUTH_STRING: "admin:hunter2",
        PREFECT_API_KEY: "pnu_hunter2",
        PREFECT_SERVER_DATABASE_CONNECTION_URL: "sqlite+aiosqlite:////hunter2.db",
    }
    with temporary_settings(secret):
        env = bench.configuration(env={"TZ": "UTC"}).env
    assert env == {"PREFECT_API_URL": API, "PREFECT__FLOW_RUN_ID": str(bench.flow_run.id), "TZ": "UTC"}


def test_an_instance_stands_in_the_group_that_lets_nothing_in(bench: Bench, aws: Aws) -> None:
    """No group is named: ours is made, by the pool worker, with the pool's tag, and later launches find it."""
    groups: list[Any] = []

    async def story() -> None:
        (instance,) = bench.running
        found = aws.ec2.describe_instances(InstanceIds=[instance.id])["Reservations"][0]["Instances"][0]
        ids = [group["GroupId"] for group in found["SecurityGroups"]]
        groups.extend(aws.ec2.describe_security_groups(GroupIds=ids)["SecurityGroups"])
        bench.prefect.go_to(Cancelling())

    bench.run(story)
    (group,) = groups
    assert group["GroupName"] == "inspect-fleet-worker"
    assert group["IpPermissions"] == []
    assert POOL_TAG in {tag["Key"] for tag in group["Tags"]}


def test_the_instance_may_be_given_another_api_address_than_the_pool_workers(bench: Bench) -> None:
    configuration = bench.configuration(env={"PREFECT_API_URL": "https://prefect.example.org/api"})
    assert configuration.env["PREFECT_API_URL"] == "https://prefect.example.org/api"


@pytest.mark.parametrize("state", [Cancelling, Completed])
def test_a_run_that_ended_before_its_launch_is_not_launched(bench: Bench, state: Callable[[], State[Any]]) -> None:
    bench.prefect.go_to(state())
    bench.run()
    assert bench.prefect.end[0] in ("Cancelled", "Completed")
    assert bench.instances == []


def test_a_run_that_is_cancelled_while_ec2_throttles_its_launch_ends_at_once(bench: Bench) -> None:
    """It would wait for minutes; the watch sees that nobody wants it."""
    bench.worker._access = Access()
    client = bench.worker._access.of(None, REGION).ec2_once
    client.meta.events.register(
        "before-call.ec2.RunInstances",
        lambda **more: None if more["params"]["body"].get("DryRun") else bench.prefect.go_to(Cancelling()),
    )
    fail(client, "RunInstances", "RequestLimitExceeded", status=503)
    result = bench.run()
    assert result.identifier == "none"
    assert bench.prefect.end == ("Cancelled", "cancelled before an instance was launched")
    assert bench.instances == []


@pytest.mark.fault("launch-error")
def test_a_failure_after_the_launch_takes_the_instance_with_it(bench: Bench) -> None:
    def break_down(state: State[Any]) -> None:
        if state.name == "InfrastructurePending":
            raise RuntimeError("a bug")

    bench.prefect.before_state = break_down
    with pytest.raises(BaseExceptionGroup) as caught:
        bench.run()
    assert caught.group_contains(RuntimeError, match="a bug")
    assert bench.running == []
    assert len(bench.instances) == 1
    assert bench.prefect.end == ("Crashed", "no instance was launched: RuntimeError: a bug")


def stopped(bench: Bench, when: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    """Run the flow run in a pool worker that is stopped; `when` gets the way to stop it."""

    async def go() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                bench.worker._runs_task_group = group
                group.start_soon(bench.worker.observer.run)
                group.start_soon(bench.worker.run, bench.flow_run, bench.configuration(), bench.status)
                await when(group.cancel_scope.cancel)

    anyio.run(go)


@pytest.mark.fault("pool-worker-dies")
def test_a_pool_worker_that_is_stopped_in_the_midst_of_a_launch_leaves_nothing(bench: Bench) -> None:
    async def when(stop: Callable[[], None]) -> None:
        bench.prefect.before_state = lambda state: stop() if state.name == "InfrastructurePending" else None

    original = bench.prefect.set_flow_run_state

    async def slow(*args: Any, **more: Any) -> Any:
        answer = await original(*args, **more)
        await anyio.lowlevel.checkpoint()
        return answer

    bench.prefect.set_flow_run_state = slow  # type: ignore[method-assign]
    stopped(bench, when)
    assert len(bench.instances) == 1
    assert bench.running == []
    assert bench.prefect.end == ("Crashed", "the pool worker was stopped while it launched the instance")


@pytest.mark.fault("pool-worker-dies")
def test_a_pool_worker_that_is_stopped_later_leaves_its_instances_to_the_next_one(bench: Bench, aws: Aws) -> None:
    async def when(stop: Callable[[], None]) -> None:
        await bench.status.heard.wait()
        while bench.prefect.end[0] != "InfrastructurePending":  # noqa: ASYNC110
            await anyio.sleep(0.001)
        bench.prefect.go_to(Running())
        await anyio.sleep(0.05)
        stop()

    stopped(bench, when)
    (left,) = bench.running
    assert bench.prefect.end[0] == "Running"

    bench.worker = bench.pool_worker()

    async def next_one() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(bench.worker.observer.run)
                while left.id not in bench.worker.observer.watched:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                aws.ec2.terminate_instances(InstanceIds=[left.id])
                while bench.worker.observer.watched:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()

    anyio.run(next_one)
    assert bench.prefect.end[0] == "Crashed"
