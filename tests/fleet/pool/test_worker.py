"""The pool worker against the emulator, with a small Prefect server in memory: what it launches is recorded or gone."""

from __future__ import annotations

import base64
import logging
import random
import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from prefect.client.schemas.objects import FlowRun, State, WorkPool
from prefect.client.schemas.responses import (
    OrchestrationResult,
    SetStateStatus,
    StateAbortDetails,
    StateAcceptDetails,
    StateRejectDetails,
)
from prefect.exceptions import InfrastructureNotAvailable, InfrastructureNotFound
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_KEY,
    PREFECT_API_URL,
    PREFECT_SERVER_DATABASE_CONNECTION_URL,
    temporary_settings,
)
from prefect.states import Cancelling, Completed, Pending, Running

from fleet.aws.hunt import Member
from fleet.aws.instances import Instance, Instances
from fleet.aws.session import Aws
from fleet.pool.access import Access
from fleet.pool.launch_desk import group_name
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG
from fleet.pool.settings import PoolSettings
from fleet.pool.variables import EC2JobConfiguration
from fleet.pool.worker import EC2Worker, EC2WorkerResult
from tests.fleet.aws.conftest import REGION, fail

pytestmark = pytest.mark.usefixtures("quiet_prefect")

API = "http://127.0.0.1:4200/api"


class FakePrefect:
    """Prefect's API with one flow run in it, and the few of its rules that matter here."""

    def __init__(self, run: FlowRun) -> None:
        self.run = run
        self.states: list[State[Any]] = []
        self.before_state: Callable[[State[Any]], None] = lambda _: None

    async def read_flow_run(self, _: UUID) -> FlowRun:
        return self.run

    async def read_flow_runs(self, **_: Any) -> list[FlowRun]:
        return [self.run]

    async def update_flow_run(self, _: UUID, infrastructure_pid: str) -> None:
        self.run = self.run.model_copy(update={"infrastructure_pid": infrastructure_pid})

    async def update_flow_run_labels(self, _: UUID, labels: dict[str, Any]) -> None:
        self.run = self.run.model_copy(update={"labels": self.run.labels | labels})

    async def set_flow_run_state(
        self, flow_run_id: UUID, state: State[Any], force: bool = False
    ) -> OrchestrationResult[Any]:
        await anyio.lowlevel.checkpoint()
        self.before_state(state)
        now = self.run.state
        assert now is not None
        if now.is_final() or (now.is_cancelling() and state.is_pending()):
            details = StateAbortDetails(reason="no way from here")
            return OrchestrationResult(state=None, status=SetStateStatus.ABORT, details=details)
        if now.is_cancelling() and not state.is_cancelled():
            reject = StateRejectDetails(reason="it is cancelling")
            return OrchestrationResult(state=now, status=SetStateStatus.REJECT, details=reject)
        self.states.append(state)
        self.go_to(state)
        return OrchestrationResult(state=state, status=SetStateStatus.ACCEPT, details=StateAcceptDetails())

    def go_to(self, state: State[Any]) -> None:
        self.run = self.run.model_copy(update={"state": state})

    @property
    def end(self) -> tuple[str, str]:
        """Name and message of the last state."""
        state = self.run.state
        assert state is not None
        return str(state.name), str(state.message)


class Started:
    """What Prefect hears when a run is submitted."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.heard = anyio.Event()

    def started(self, value: Any = None) -> None:
        self.values.append(value)
        self.heard.set()


class Bench:
    """A pool worker on a bench: its server, its AWS, and one flow run."""

    def __init__(self, aws: Aws, access: Access) -> None:
        self.access = access
        state: State[Any] = Pending(name="Submitting")
        self.flow_run = FlowRun(flow_id=uuid4(), name="worker 1", state=state, state_id=state.id)
        self.prefect = FakePrefect(self.flow_run)
        self.status = Started()
        self.pool = WorkPool(
            name="ec2",
            type="ec2",
            base_job_template=EC2Worker.get_default_base_job_template(),
            default_queue_id=uuid4(),
        )
        self.worker = self.pool_worker()
        self.image = aws.ec2.describe_images(Filters=[{"Name": "name", "Values": ["amzn2-ami-hvm*"]}])["Images"][0]
        self.ec2 = Instances(aws)

    def pool_worker(self) -> EC2Worker:
        """A new pool worker, as after a restart."""
        settings = PoolSettings(poll_seconds=0.02, idle_seconds=0.02, grace_seconds=0.1, gather_seconds=0.01)
        worker = EC2Worker("ec2", settings=settings)
        worker._access = self.access
        worker._client = self.prefect  # type: ignore[assignment]
        worker._work_pool = self.pool
        worker.get_flow_run_logger = lambda _: logging.getLogger("flow run")  # type: ignore[method-assign,assignment,return-value]
        return worker

    def configuration(self, **more: Any) -> EC2JobConfiguration:
        given = {"image": self.image["ImageId"], "instance_types": ["c5.large"], "region": REGION, **more}
        configuration = EC2JobConfiguration(**given)
        configuration.prepare_for_flow_run(self.flow_run, work_pool=self.pool, worker_name=self.worker.name)
        return configuration

    @property
    def instances(self) -> list[Instance]:
        return self.ec2.find({POOL_TAG: str(self.pool.id)})

    @property
    def running(self) -> list[Instance]:
        return [each for each in self.instances if not each.leaving]

    def run(
        self, story: Callable[[], Awaitable[None]] | None = None, configuration: EC2JobConfiguration | None = None
    ) -> EC2WorkerResult:
        """Run the flow run to its end, with the watch going on; `story` begins when the run is started."""
        results: list[EC2WorkerResult] = []

        async def one() -> None:
            found = await self.worker.run(
                self.flow_run,
                configuration or self.configuration(),
                self.status,
            )
            results.append(found)

        async def go() -> None:
            with anyio.fail_after(30):
                async with anyio.create_task_group() as group:
                    self.worker._runs_task_group = group
                    group.start_soon(self.worker.observer.run)
                    async with anyio.create_task_group() as inner:
                        inner.start_soon(one)
                        if story:
                            await self.status.heard.wait()
                            await story()
                    self.worker.observer.leave()

        anyio.run(go)
        return results[0]


@pytest.fixture
def bench(aws: Aws, access: Access) -> Iterator[Bench]:
    with temporary_settings({PREFECT_API_URL: API}):
        yield Bench(aws, access)


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


def test_a_network_that_cannot_be_used_is_refused_and_no_group_is_made(bench: Bench, aws: Aws) -> None:
    vpc = aws.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    here = aws.ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    bench.run(configuration=bench.configuration(subnets=[here, "subnet-0123456789abcdef0"]))
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert "EC2 knows no subnet-0123456789abcdef0 there" in message
    groups = aws.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
    assert bench.instances == []


@pytest.mark.fault("permission-missing")
def test_missing_permissions_are_named_in_the_runs_state_and_nothing_is_made(bench: Bench, aws: Aws) -> None:
    """Found by a dry run, before a group or an instance: a launch that is denied, and a role that can't be given."""
    bench.worker._access = Access()
    clients = bench.worker._access.of(None, REGION)
    vpc = aws.ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    here = aws.ec2.create_subnet(VpcId=vpc, CidrBlock="10.8.1.0/24", AvailabilityZone=f"{REGION}a")["Subnet"][
        "SubnetId"
    ]
    fail(clients.ec2_once, "RunInstances", "UnauthorizedOperation", "not you", status=403)
    fail(clients.ec2_once, "DescribeInstances", "UnauthorizedOperation", "not you", status=403)
    bench.run(configuration=bench.configuration(subnets=[here]))
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert f"lacks 2 permissions to launch instances in {REGION}; nothing was created:" in message
    assert "\n  ec2:RunInstances: needed to launch instances" in message
    assert "\n  ec2:DescribeInstances: needed to watch instances" in message
    groups = aws.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
    assert bench.instances == []


def test_a_look_that_is_denied_names_all_that_is_missing(bench: Bench) -> None:
    bench.worker._access = Access()
    clients = bench.worker._access.of(None, REGION)
    for client in (clients.ec2, clients.ec2_once):
        fail(client, "DescribeImages", "UnauthorizedOperation", "not you", status=403)
        fail(client, "DescribeInstanceTypes", "UnauthorizedOperation", "not you", status=403)
    bench.run()
    message = bench.prefect.end[1]
    assert "lacks 2 permissions" in message
    assert "ec2:DescribeImages" in message
    assert "ec2:DescribeInstanceTypes" in message


@pytest.mark.fault("no-capacity")
def test_without_capacity_the_run_crashes_with_the_table_and_nothing_is_left(bench: Bench) -> None:
    bench.worker._access = Access()
    # An account that may not ask for several places at once: they are asked one by one.
    fail(bench.worker._access.of(None, REGION).ec2_once, "CreateFleet", "UnauthorizedOperation", status=403)
    fail(
        bench.worker._access.of(None, REGION).ec2_once,
        "RunInstances",
        "InsufficientInstanceCapacity",
        "none left",
        status=500,
    )
    result = bench.run(configuration=bench.configuration(instance_types=["c5.large", "m5.large"], market="spot"))
    assert isinstance(bench.status.values[0], Exception)
    assert result.identifier == "none"
    name, message = bench.prefect.end
    assert name == "Crashed"
    where = [line.split()[:3] for line in message.splitlines()[2:]]
    assert message.startswith(f"no capacity in {REGION}: all {len(where)} candidates were refused")
    assert message.count("InsufficientInstanceCapacity: none left") == len(where)
    # Each type in each zone that has it, on each market; all of spot first.
    markets = [market for _, _, market in where]
    assert markets == sorted(markets, reverse=True)
    assert {(kind, market) for kind, _, market in where} == {
        (kind, market) for kind in ("c5.large", "m5.large") for market in ("spot", "on-demand")
    }
    assert len({subnet for _, subnet, _ in where}) > 1
    assert bench.instances == []
    left = bench.worker._access.of(None, REGION).ec2.describe_launch_templates()["LaunchTemplates"]
    assert not [each for each in left if POOL_TAG in {tag["Key"] for tag in each.get("Tags", [])}]


REFUSED = [
    ("a secret in plain env", {"env": {"OPENAI_API_KEY": "hunter2"}}, "OPENAI_API_KEY looks like a secret"),
    ("user data too large", {"env": {"A": "x" * 17_000}}, "user data of"),
    ("code without its digest", {"code": "s3://bucket/key"}, "code_sha256"),
    ("a log folder that is no address", {"log_folder": "/logs"}, "log_folder refused"),
    ("a volume smaller than the image", {"volume_gb": 8}, "a root volume of 8 GB is too small"),
    ("a tag of AWS's own", {"tags": {"aws:x": "1"}}, "tags refused"),
    ("an image that is not there", {"image": "ami-0123456789abcdef0"}, "worker image ami-0123456789abcdef0 refused"),
    ("an API address with a password", {"env": {"PREFECT_API_URL": "http://a:hunter2@h/api"}}, "user or password"),
]


@pytest.mark.parametrize(("more", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_work_is_refused_before_anything_is_launched(bench: Bench, more: dict[str, Any], why: str) -> None:
    bench.run(configuration=bench.configuration(**more))
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert why in message
    assert "hunter2" not in message
    assert bench.instances == []


def test_user_data_that_nothing_makes_smaller_is_refused_and_aws_was_asked_to_make_nothing(
    bench: Bench, aws: Aws
) -> None:
    noise = base64.b85encode(random.Random(1).randbytes(14_000)).decode()  # noqa: S311  any noise will do
    assert len(zlib.compress(noise.encode(), 9)) > 14_000
    configuration = bench.configuration(env={"NOISE": noise})
    asked: list[str] = []

    def hear(model: Any, **_: Any) -> None:
        asked.append(model.name)

    clients: list[Any] = [aws.ec2, aws.ec2_once, aws.ssm, aws.s3, aws.sts]
    for client in clients:
        client.meta.events.register("before-call", hear)
    try:
        bench.run(configuration=configuration)
        looks = list(asked)
        assert bench.instances == []
    finally:
        for client in clients:  # they outlive the test
            client.meta.events.unregister("before-call", hear)
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert "EC2 takes 16,384. The largest variables are NOISE" in message
    assert "DescribeImages" in looks
    assert [call for call in looks if not call.startswith(("Describe", "Get"))] == []


def test_a_loopback_api_and_a_real_aws_are_refused_with_one_clear_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = bench.configuration()
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    bench.worker._access = Access()
    bench.run(configuration=configuration)
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert message.startswith(f"the Prefect API address {API} won't do for an instance: it is this machine's loopback")
    assert "\n" not in message


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


# kill_infrastructure


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
