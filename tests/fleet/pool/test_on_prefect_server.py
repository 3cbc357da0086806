"""The pool type on a real Prefect server, with the emulator's instances: crash and cancel reach both sides at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, WorkPool
from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings
from prefect.states import Cancelling, Pending, Running, Scheduled

from fleet.aws.instances import Instance, Instances
from fleet.aws.session import Aws
from fleet.evals.progress import WorkerPhase
from fleet.pool import runs
from fleet.pool.access import Access
from fleet.pool.order import POOL_TAG
from fleet.pool.run_states import RunStates
from fleet.pool.settings import PoolSettings
from fleet.pool.setup import PoolTypeMismatch, ensure_pool
from fleet.pool.worker import EC2Worker
from tests.fleet.aws.conftest import REGION

pytestmark = pytest.mark.cloud

SETTINGS = PoolSettings(poll_seconds=0.2, idle_seconds=0.2, sweep_seconds=0.5, grace_seconds=1)


@pytest.fixture(scope="module")
def prefect_server(prefect_api: str) -> Iterator[None]:
    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: True}):
        yield


class Stage:
    """A pool with a pool worker on a real server, and a deployment to run."""

    def __init__(self, client: PrefectClient, aws: Aws, pool: WorkPool, deployment: UUID, worker: EC2Worker) -> None:
        self.client, self.aws, self.pool, self.deployment, self.worker = client, aws, pool, deployment, worker

    async def submit(self, **job_variables: Any) -> FlowRun:
        run = await self.client.create_flow_run_from_deployment(self.deployment, job_variables=job_variables)
        await self.worker.get_and_submit_flow_runs()
        return run

    async def instances(self) -> list[Instance]:
        return await anyio.to_thread.run_sync(Instances(self.aws).find, {POOL_TAG: str(self.pool.id)})

    async def living(self) -> list[Instance]:
        return [each for each in await self.instances() if not each.leaving]

    async def wait(self, run: FlowRun, state: str) -> FlowRun:
        while True:
            seen = await self.client.read_flow_run(run.id)
            if seen.state is not None and seen.state.name == state:
                return seen
            await anyio.sleep(0.1)

    async def looks(self, count: int) -> None:
        """Wait until the pool worker has looked at its instances so many times more."""
        observer, done = self.worker.observer, anyio.Event()
        look = observer.look
        left = count

        async def counted() -> None:
            nonlocal left
            await look()
            left -= 1
            if left == 0:
                done.set()

        observer.look = counted  # type: ignore[method-assign]
        await done.wait()
        observer.look = look  # type: ignore[method-assign]


@asynccontextmanager
async def a_stage(aws: Aws, access: Access, image: str) -> AsyncIterator[Stage]:
    async with get_client() as client:
        defaults = {"region": REGION, "image": image, "instance_types": ["c5.large"]}
        pool = await ensure_pool(client, f"ec2-{uuid4().hex[:6]}", defaults=defaults)
        flow = await client.create_flow_from_name(f"work-{uuid4().hex[:6]}")
        deployment = await client.create_deployment(
            flow, "on-ec2", work_pool_name=pool.name, entrypoint="flows.fleet_worker.fleet_worker"
        )
        async with a_worker(access, pool) as worker:
            yield Stage(client, aws, pool, deployment, worker)


@asynccontextmanager
async def a_worker(access: Access, pool: WorkPool) -> AsyncIterator[EC2Worker]:
    """A pool worker that is stopped, as by a signal, when the story ends."""
    worker = EC2Worker(pool.name, name=f"worker-{uuid4().hex[:6]}", settings=SETTINGS)
    worker._access = access
    ready, over = anyio.Event(), anyio.CancelScope()

    async def serve() -> None:
        with over:
            async with worker:
                ready.set()
                await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        await ready.wait()
        try:
            yield worker
        finally:
            over.cancel()


@pytest.fixture
def play(prefect_server: None, aws: Aws, access: Access) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    image = aws.ec2.describe_images(Filters=[{"Name": "name", "Values": ["amzn2-ami-hvm*"]}])["Images"][0]["ImageId"]

    def play_it(story: Callable[[Stage], Awaitable[None]]) -> None:
        async def go() -> None:
            with anyio.fail_after(120):
                async with a_stage(aws, access, image) as stage:
                    await story(stage)

        anyio.run(go)

    return play_it


Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


@pytest.mark.fault("instance-dies")
def test_an_instance_terminated_from_outside_crashes_its_flow_run_with_the_reason(play: Play, unique: str) -> None:
    """And the end of its boot log is in the flow run's log."""

    async def story(stage: Stage) -> None:
        stage.aws.s3.create_bucket(Bucket=unique)
        run = await stage.submit(log_folder=f"s3://{unique}/instances")
        await stage.wait(run, "InfrastructurePending")
        (instance,) = await stage.living()
        seen = await stage.wait(run, "InfrastructurePending")
        assert seen.infrastructure_pid == f"{REGION}::{instance.id}"
        await stage.client.set_flow_run_state(run.id, Running())
        stage.aws.s3.put_object(Bucket=unique, Key=f"instances/{instance.id}/boot.log", Body=b"first\nlast words\n")
        stage.aws.ec2.terminate_instances(InstanceIds=[instance.id])
        crashed = await stage.wait(run, "Crashed")
        assert crashed.state is not None
        assert crashed.state.message is not None
        assert "it was terminated from outside (Client.UserInitiatedShutdown" in crashed.state.message
        lines: list[str] = []
        while not any("last words" in line for line in lines):
            await anyio.sleep(0.2)
            found = await stage.client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id])))
            lines = [each.message for each in found]
        assert crashed.state.message in lines

    play(story)


@pytest.mark.fault("cancelled")
def test_cancelling_a_flow_run_terminates_its_instance(play: Play) -> None:
    async def story(stage: Stage) -> None:
        booting, working = await stage.submit(), await stage.submit()
        for run in (booting, working):
            await stage.wait(run, "InfrastructurePending")
        await stage.client.set_flow_run_state(working.id, Running())
        assert len(await stage.living()) == 2
        for run in (booting, working):
            await stage.client.set_flow_run_state(run.id, Cancelling())
        for run in (booting, working):
            ended = await stage.wait(run, "Cancelled")
            assert ended.state is not None
            assert "its instance" in str(ended.state.message)
        assert await stage.living() == []

    play(story)


def test_a_run_that_is_retried_gets_a_new_instance_and_keeps_it(play: Play) -> None:
    """The old instance's end must not crash the new attempt, nor its client token answer with the old one."""

    async def story(stage: Stage) -> None:
        run = await stage.submit()
        await stage.wait(run, "InfrastructurePending")
        (first,) = await stage.living()
        await stage.client.set_flow_run_state(run.id, Running())
        stage.aws.ec2.terminate_instances(InstanceIds=[first.id])
        await stage.wait(run, "Crashed")
        await stage.client.set_flow_run_state(run.id, Scheduled())
        await stage.worker.get_and_submit_flow_runs()
        await stage.wait(run, "InfrastructurePending")
        await stage.client.set_flow_run_state(run.id, Running())
        (second,) = await stage.living()
        assert second.id != first.id
        await stage.looks(3)
        assert (await stage.wait(run, "Running")).infrastructure_pid == f"{REGION}::{second.id}"
        assert [each.id for each in await stage.living()] == [second.id]

    play(story)


@pytest.mark.fault("pool-worker-dies")
def test_the_next_pool_worker_watches_what_the_last_one_left(play: Play, access: Access) -> None:
    async def story(stage: Stage) -> None:
        async with a_worker(access, stage.pool) as other:
            run = await stage.client.create_flow_run_from_deployment(stage.deployment)
            await other.get_and_submit_flow_runs()
            await stage.wait(run, "InfrastructurePending")
            await stage.client.set_flow_run_state(run.id, Running())
        (instance,) = await stage.living()
        (facts,) = await anyio.to_thread.run_sync(runs.look_at, [run.id])
        assert (facts.instance_type, facts.market) == (instance.instance_type, instance.market)
        while instance.id not in stage.worker.observer.watched:  # noqa: ASYNC110
            await anyio.sleep(0.1)
        # As if the update had failed that Prefect makes after a launch, and only logs.
        await stage.client.request(
            "PATCH", "/flow_runs/{id}", path_params={"id": run.id}, json={"infrastructure_pid": None}
        )
        while (await stage.client.read_flow_run(run.id)).infrastructure_pid != instance.identifier:  # noqa: ASYNC110
            await anyio.sleep(0.1)
        stage.aws.ec2.terminate_instances(InstanceIds=[instance.id])
        await stage.wait(run, "Crashed")

    play(story)


@pytest.mark.fault("instance-dies")
def test_the_controller_sees_that_ec2_itself_took_an_instance(play: Play) -> None:
    async def story(stage: Stage) -> None:
        first, second = [await stage.client.create_flow_run_from_deployment(stage.deployment) for _ in range(2)]
        for run, interrupted in ((first, True), (second, False)):
            await stage.client.set_flow_run_state(run.id, Running(), force=True)
            await RunStates(lambda: stage.client).crash(run.id, "gone", interrupted=interrupted)
        facts = await anyio.to_thread.run_sync(runs.look_at, [first.id, second.id])
        assert [(fact.phase, fact.interrupted) for fact in facts] == [
            (WorkerPhase.LOST, True),
            (WorkerPhase.LOST, False),
        ]

    play(story)


@pytest.mark.fault("pool-worker-dies")
def test_a_run_that_the_last_pool_worker_took_up_and_never_launched_gets_its_instance(play: Play) -> None:
    """Prefect shows it as Pending for ever: it submits each run once. While another worker is online, that one may be launching."""

    async def story(stage: Stage) -> None:
        await stage.client.send_worker_heartbeat(stage.pool.name, "another")
        run = await stage.client.create_flow_run_from_deployment(stage.deployment)
        await stage.client.set_flow_run_state(run.id, Pending())
        await stage.looks(5)
        await stage.wait(run, "Pending")
        gone = await stage.client._client.delete(f"/work_pools/{stage.pool.name}/workers/another")
        gone.raise_for_status()
        await stage.wait(run, "Scheduled")
        await stage.worker.get_and_submit_flow_runs()
        await stage.wait(run, "InfrastructurePending")
        assert len(await stage.living()) == 1

    play(story)


def test_what_is_refused_is_said_in_the_crashed_state(play: Play) -> None:
    async def story(stage: Stage) -> None:
        run = await stage.submit(env={"OPENAI_API_KEY": "hunter2"})
        crashed = await stage.wait(run, "Crashed")
        assert crashed.state is not None
        assert str(crashed.state.message).startswith("job variable env refused: OPENAI_API_KEY looks like a secret")
        assert await stage.instances() == []

    play(story)


def test_ensuring_a_pool_twice_renews_its_template_and_keeps_what_people_set(prefect_server: None) -> None:
    async def story() -> None:
        async with get_client() as client:
            name = f"ec2-{uuid4().hex[:6]}"
            made = await ensure_pool(client, name)
            assert (made.type, made.concurrency_limit) == ("ec2", None)
            await client.update_work_pool(
                name, WorkPoolUpdate(concurrency_limit=3, is_paused=True, base_job_template={})
            )
            again = await ensure_pool(client, name, defaults={"region": "eu-west-1"})
            assert (again.id, again.concurrency_limit, again.is_paused) == (made.id, 3, True)
            assert again.base_job_template["variables"]["properties"]["region"]["default"] == "eu-west-1"
            other = f"process-{uuid4().hex[:6]}"
            await client.create_work_pool(WorkPoolCreate(name=other, type="process"))
            with pytest.raises(PoolTypeMismatch, match="is of type process, not ec2"):
                await ensure_pool(client, other)

    anyio.run(story)
