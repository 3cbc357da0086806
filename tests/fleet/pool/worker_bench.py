"""A pool worker on a bench, with a small Prefect server in memory. No test in here."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import anyio
from prefect.client.schemas.objects import FlowRun, State, WorkPool
from prefect.client.schemas.responses import (
    OrchestrationResult,
    SetStateStatus,
    StateAbortDetails,
    StateAcceptDetails,
    StateRejectDetails,
)
from prefect.states import Pending

from fleet.aws.instances import Instance, Instances
from fleet.aws.session import Aws
from fleet.pool.access import Access
from fleet.pool.order import POOL_TAG
from fleet.pool.settings import PoolSettings
from fleet.pool.variables import EC2JobConfiguration
from fleet.pool.worker import EC2Worker, EC2WorkerResult
from tests.fleet.aws.conftest import REGION

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
