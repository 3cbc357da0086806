"""The pool worker of work pools of type `ec2`: every flow run on an EC2 instance of its own.

Launching is `launch_desk`, watching is `observer`, deciding is `verdict`; this class joins them to Prefect. What it launches is
recorded or gone; what is recorded is watched until it ends, by this process or by the next one.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import anyio
import anyio.abc
import anyio.to_thread
import httpx
from prefect.client.schemas.objects import FlowRun, State, WorkerStatus
from prefect.exceptions import Abort, InfrastructureNotAvailable, InfrastructureNotFound, Pause
from prefect.logging.loggers import PrefectLogAdapter
from prefect.states import InfrastructurePending
from prefect.utilities.engine import propose_state
from prefect.workers.base import BaseWorker, BaseWorkerResult

from fleet.aws.capacity import Candidate
from fleet.aws.failures import AwsRefused, Denied
from fleet.aws.hypervisors import Hypervisors
from fleet.aws.identity import Caller, caller
from fleet.aws.images import WorkerImage, check_image
from fleet.aws.instances import Instance, Instances, LaunchOrder
from fleet.aws.network import Network, Networks
from fleet.aws.preflight import Preflights, launch_scope, require
from fleet.aws.probes import Scope
from fleet.aws.session import Aws
from fleet.errors import FleetError
from fleet.pool.access import Access
from fleet.pool.launch_desk import LaunchDesk
from fleet.pool.observer import Observer
from fleet.pool.order import POOL_TAG, check, make_order, own_tags
from fleet.pool.recent import Recent
from fleet.pool.run_states import RunStates, view_of
from fleet.pool.settings import PoolSettings
from fleet.pool.variables import IMAGE_PARAMETER, EC2JobConfiguration, EC2Variables
from fleet.pool.verdict import OVER_PHASES
from fleet.pool.watched import Terms, Watched

LAST_WORDS_S = 30.0
"""Seconds that a cancelled launch may take to remove its instance and say so."""
NOTHING = "none"
"""The identifier of a launch that left no instance."""


class NotWanted(FleetError):
    """The flow run ended, or its end was asked for, before an instance was launched."""

    flow_run: str

    def message(self) -> str:
        """One line for the state of a run that was cancelled."""
        return "cancelled before an instance was launched"


class EC2WorkerResult(BaseWorkerResult):
    """How the watch over one flow run ended. `status_code` is 0 throughout: the state, with its reason, is set already.

    Prefect answers another code with a Crashed state of its own, and by then the flow run may be on its way to a new attempt.
    """


class EC2Worker(BaseWorker[EC2JobConfiguration, EC2Variables, EC2WorkerResult]):
    """Launches, watches and terminates one instance for each flow run."""

    type = "ec2"
    job_configuration = EC2JobConfiguration
    job_configuration_variables = EC2Variables

    _display_name = "AWS EC2"
    _description = "Run each flow run on an EC2 instance of its own."

    def __init__(self, *args: Any, settings: PoolSettings | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = settings or PoolSettings.from_environment(os.environ)
        self._access = Access()
        self._networks = Networks()
        self._preflights = Preflights()
        self._runs = RunStates(lambda: self.client)
        self._hypervisors = Hypervisors()
        self._images: Recent[WorkerImage] = Recent()
        self._callers: Recent[Caller] = Recent()
        self._desk = LaunchDesk(
            self._tasks,
            deadline_seconds=self._settings.launch_seconds,
            window_seconds=self._settings.gather_seconds,
        )
        self.observer = Observer(self, self._runs, self._settings, self._logger)

    async def setup(self) -> None:
        """As Prefect does it; then the watch begins, over what an earlier pool worker left as well."""
        await super().setup()
        self._tasks().start_soon(self.observer.run)

    async def teardown(self, *exc_info: Any) -> None:
        """Wait for the own flow runs, unless cancelled; instances stay, and the next pool worker watches them."""
        self.observer.leave()
        await super().teardown(*exc_info)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: EC2JobConfiguration,
        task_status: anyio.abc.TaskStatus[Any] | None = None,
    ) -> EC2WorkerResult:
        """Launch an instance for the flow run, record it, and watch until both have ended."""
        try:
            with self.observer.launching(flow_run.id) as wanted:
                launched = await self._launched(flow_run, configuration, wanted)
                watch = await self._recorded(flow_run, configuration, launched, task_status)
        except FleetError as error:
            # Said by hand: Prefect's own way adds a traceback, which is for bugs.
            self.get_flow_run_logger(flow_run).error(str(error))
            await self._runs.crash(flow_run.id, str(error))
            if task_status is not None:
                task_status.started(error)  # to Prefect: not submitted
            return EC2WorkerResult(identifier=NOTHING, status_code=0)
        except anyio.get_cancelled_exc_class():
            await self._last_words(flow_run, "the pool worker was stopped while it launched the instance")
            raise
        except Exception as error:
            await self._last_words(flow_run, f"no instance was launched: {type(error).__name__}: {error}")
            raise
        await watch.done.wait()
        return EC2WorkerResult(identifier=launched.identifier, status_code=0)

    async def kill_infrastructure(
        self, infrastructure_pid: str, configuration: EC2JobConfiguration, grace_seconds: int = 30
    ) -> None:
        """Terminate a flow run's instance; there is no grace, its jobs go back by themselves.

        InfrastructureNotFound: EC2 doesn't know it. InfrastructureNotAvailable: it isn't an instance of a work pool.
        """
        region, mark, instance_id = infrastructure_pid.partition("::")
        if not mark or not instance_id.startswith("i-"):
            raise InfrastructureNotAvailable(f"{infrastructure_pid!r} names no EC2 instance")
        ec2 = Instances(self._access.of(configuration.aws_credentials, region))
        instance = await anyio.to_thread.run_sync(ec2.get, instance_id)
        if instance is None and instance_id in self.observer.watched:
            return  # launched just now, and EC2 doesn't show it yet: the watch terminates it as soon as it can
        if instance is None:
            raise InfrastructureNotFound(f"EC2 in {region} knows no instance {instance_id}")
        if POOL_TAG not in instance.tags:
            raise InfrastructureNotAvailable(f"{instance_id} lacks the tag {POOL_TAG}: no work pool launched it")
        await anyio.to_thread.run_sync(ec2.terminate, [instance_id])

    # Launching

    async def _launched(
        self, flow_run: FlowRun, configuration: EC2JobConfiguration, wanted: anyio.CancelScope
    ) -> Instance:
        """A new instance. NotWanted: the flow run ended before it came to that."""
        with wanted:
            if view_of(await self.client.read_flow_run(flow_run.id)).phase not in OVER_PHASES:
                aws = self._access.of(configuration.aws_credentials, configuration.region)
                order, places = await anyio.to_thread.run_sync(self._order, flow_run, configuration, aws)
                return await self._desk.launch(aws, order, places, own_tags(configuration, str(flow_run.id)))
        raise NotWanted(flow_run=str(flow_run.id))

    def _order(
        self, flow_run: FlowRun, configuration: EC2JobConfiguration, aws: Aws
    ) -> tuple[LaunchOrder, Sequence[Candidate]]:
        """What to launch, and where. Blocking; whatever can't be launched is refused here, before anything is."""
        check(configuration, aws_endpoint=aws.ec2.meta.endpoint_url)
        image_parameter = configuration.image if configuration.image.startswith("/") else ""
        try:
            image, network = self._looked_at(configuration, aws)
        except Denied:
            require(aws, "launcher", Scope(image_parameter=image_parameter))  # names whatever else is missing
            raise
        places = network.places(configuration.instance_types, configuration.market)
        order = make_order(
            configuration,
            attempt=str(flow_run.state_id or f"{flow_run.id}-{flow_run.run_count}"),
            flow_run_id=str(flow_run.id),
            pool_id=str(self.work_pool.id),
            image=image.id,
            root_device=image.root_device,
            launched_by=self._callers.get(aws, lambda: caller(aws)).name,
            alone=not self._hypervisors.tags_are_live(aws, configuration.instance_types),
        )
        tags = {POOL_TAG: str(self.work_pool.id)}
        self._preflights.launcher(aws, launch_scope(order, places[0], network, tags, image_parameter=image_parameter))
        network = self._networks.settle(aws, network, tags)
        return dataclasses.replace(order, security_groups=network.groups), places

    def _looked_at(self, configuration: EC2JobConfiguration, aws: Aws) -> tuple[WorkerImage, Network]:
        """The image and the network that are asked for, fit to launch."""
        image = self._images.get(
            (aws, configuration.image, *configuration.instance_types, configuration.volume_gb),
            lambda: check_image(
                aws,
                requested=configuration.image,
                default_parameter=IMAGE_PARAMETER,
                instance_types=configuration.instance_types,
                volume_gb=configuration.volume_gb,
            ),
        )
        network = self._networks.look(
            aws,
            subnets=configuration.subnets,
            groups=configuration.security_groups,
            instance_types=configuration.instance_types,
        )
        return image, network

    async def _recorded(
        self,
        flow_run: FlowRun,
        configuration: EC2JobConfiguration,
        launched: Instance,
        task_status: anyio.abc.TaskStatus[Any] | None,
    ) -> Watched:
        """Watch the instance and tell Prefect of it. What fails here, cancellation too, takes the instance with it."""
        aws = self._access.of(configuration.aws_credentials, configuration.region)
        watch = self.observer.add(flow_run.id, launched, _terms(configuration, aws))
        try:
            if task_status is not None:
                task_status.started(launched.identifier)
            else:
                await self.client.update_flow_run(flow_run.id, infrastructure_pid=launched.identifier)
            self.get_flow_run_logger(flow_run).info(
                "Launched instance %s (%s, %s) in %s",
                launched.id,
                launched.instance_type,
                launched.market,
                launched.region,
            )
            await self._announce(flow_run, launched)
        except BaseException:
            with anyio.move_on_after(LAST_WORDS_S, shield=True):
                try:
                    await anyio.to_thread.run_sync(Instances(aws).terminate, [launched.id])
                except AwsRefused as refused:
                    self._logger.error("Instance %s is left running: %s", launched.id, refused)  # noqa: TRY400
            raise
        return watch

    async def _announce(self, flow_run: FlowRun, launched: Instance) -> None:
        """Say what the instance is, and show that it boots. Not needed: at worst its price is taken for the dearest."""
        state: State[Any] = InfrastructurePending(message=f"Instance {launched.id} in {launched.region} boots.")
        try:
            await propose_state(self.client, state, flow_run_id=flow_run.id)
        except (Abort, Pause):
            pass
        except httpx.HTTPError as error:
            self._logger.warning("Flow run %s wasn't told that its instance boots: %s", flow_run.id, error)
        try:
            await self._runs.describe(flow_run.id, launched.instance_type, launched.market)
        except httpx.HTTPError as error:
            self._logger.warning("Flow run %s wasn't told what its instance is: %s", flow_run.id, error)

    async def _last_words(self, flow_run: FlowRun, why: str) -> None:
        with anyio.move_on_after(LAST_WORDS_S, shield=True):
            try:
                await self._runs.crash(flow_run.id, why)
            except httpx.HTTPError as error:
                self._logger.warning("Flow run %s wasn't told of its end: %s", flow_run.id, error)

    def _tasks(self) -> anyio.abc.TaskGroup:
        """Where everything runs that this pool worker waits for when it ends."""
        assert self._runs_task_group is not None  # noqa: S101  setup has made it
        return self._runs_task_group

    # What the observer asks for

    def pool(self) -> tuple[str, str] | None:
        """Id and name of the work pool; None before the first word with Prefect's server."""
        return (str(self._work_pool.id), self._work_pool.name) if self._work_pool else None

    async def home(self) -> Sequence[Aws]:
        """Where strangers with this pool's tag are looked for: the pool's own region, by its own credentials."""
        configuration = await self._defaults()
        return [self._access.of(configuration.aws_credentials, configuration.region)]

    async def terms(self, run: FlowRun | None, region: str) -> Terms:
        """How an adopted instance is watched: as its flow run's job variables say, or else the pool's."""
        configuration = await self._defaults()
        if run is not None:
            try:
                configuration = await self.job_configuration.resolve_for_flow_run(
                    run, client=self.client, work_pool=self.work_pool, worker_name=self.name, worker_id=self.backend_id
                )
            except Exception as error:  # noqa: BLE001  a deleted deployment, a block that is gone: watch all the same
                self._logger.warning("The job variables of flow run %s can't be resolved: %s", run.id, error)
        return _terms(configuration, self._access.of(configuration.aws_credentials, region))

    def submitting(self) -> frozenset[UUID]:
        """The flow runs that this pool worker has taken up and not launched yet, as Prefect keeps them."""
        return frozenset(self._submitting_flow_run_ids)

    async def is_alone(self) -> bool:
        """Whether the work pool has no other worker online: Prefect says so for a minute and a half after one's last word."""
        workers = await self.client.read_workers_for_work_pool(self.work_pool.name)
        return all(one.name == self.name or one.status is not WorkerStatus.ONLINE for one in workers)

    def log_of(self, run: FlowRun) -> PrefectLogAdapter:
        """The log of a flow run."""
        return self.get_flow_run_logger(run)

    async def _defaults(self) -> EC2JobConfiguration:
        try:
            return await self.job_configuration.from_template_and_values(
                base_job_template=self.work_pool.base_job_template, values={}, client=self.client
            )
        except Exception as error:  # noqa: BLE001  whatever a person has made of the template: watch all the same
            self._logger.warning("The work pool's own job variables can't be resolved: %s", error)
            return EC2JobConfiguration()


def _terms(configuration: EC2JobConfiguration, aws: Aws) -> Terms:
    return Terms(aws=aws, boot_seconds=configuration.boot_seconds, log_folder=configuration.log_folder)
