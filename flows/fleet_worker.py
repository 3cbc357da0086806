"""The flow on each instance of a fleet: it finds its host fit, fetches what it needs, then takes jobs until there are none.

Its steps are task runs, so that the Prefect UI shows where each instance is, with its log and the seconds since its boot. What can
fail at once comes before what takes minutes. What a step does stands in `bootstrap`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from prefect import Task, flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from bootstrap.duty import on_duty
from bootstrap.instance import Instance
from bootstrap.secrets import JITTER, LATER, RETRIES, RETRY_DELAYS, SETTING_DELAYS, SOON
from bootstrap.stopping import stop_on_sigterm
from bootstrap.uptime import stamp
from fleet.errors import FleetError
from fleet.evals.documents import WorkerOrder
from fleet.evals.progress import INTERRUPTED_STATE

if TYPE_CHECKING:
    from bootstrap.environment import JobEnvironment

STATE_NAMES = {"interrupted": INTERRUPTED_STATE}
"""How the UI names a worker's end, where Prefect's own name for it isn't all there is to say."""

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Instance, P], Awaitable[T]]


def _say(text: str) -> None:
    get_run_logger().info(f"{stamp()} {text}")


def _later(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """The parameter's write or its tag has not landed, or SSM doesn't answer: what waiting mends."""
    return isinstance(state.data, LATER)


def _soon(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """The tag of a parameter that is written has not landed, or all instances ask at once."""
    return isinstance(state.data, SOON)


def step(name: str, *, run_name: str | None = None, **options: Any) -> Callable[[Work[P, T]], Task[..., Any]]:
    """A step of an instance, by the name under which the UI shows it and a failure is told."""

    def of(work: Work[P, T]) -> Task[..., Any]:
        @wraps(work)
        async def begun(instance: Instance, *args: P.args, **more: P.kwargs) -> T:
            instance.doing = name
            try:
                return await work(instance, *args, **more)
            except FleetError as error:  # Prefect shows and logs it as it is
                error.clear_of(instance.secrets.hide)
                raise

        # Nothing is cached or persisted: a step's effect is on this machine and in this process, secrets among it.
        made: Task[..., Any] = task(
            name=name, task_run_name=run_name or name, cache_policy=NO_CACHE, persist_result=False, **options
        )(begun)
        return made

    return of


@step("prepare-host")
async def prepare_host(instance: Instance) -> None:
    """Check that containers can run here in numbers."""
    await instance.prepare_host()


@step(
    "fetch-secrets",
    retries=RETRIES,
    retry_delay_seconds=RETRY_DELAYS,
    retry_jitter_factor=JITTER,
    retry_condition_fn=_later,
)
async def fetch_secrets(instance: Instance) -> None:
    """Get the run's secrets into memory; retried for up to 15 minutes, since the instance may be faster than the write."""
    await instance.fetch_secrets()


@step("docker-login")
async def docker_login(instance: Instance) -> None:
    """Log in to the registry of images, once for all jobs."""
    await instance.log_in()


@step("check-gpu")
async def check_gpu(instance: Instance) -> None:
    """Where the machine has a GPU, check that containers see it."""
    await instance.check_gpu()


@step("prepare-user")
async def prepare_user(instance: Instance) -> None:
    """Give the user that runs jobs what they need on this host."""
    await instance.prepare_user()


@step("install-code")
async def install_code(instance: Instance) -> JobEnvironment:
    """Build the job environment, the same as the planner's."""
    return await instance.install_code()


@step(
    "fetch-setting-values",
    run_name="fetch-setting-values {setting}",
    retries=len(SETTING_DELAYS),
    retry_delay_seconds=SETTING_DELAYS,
    retry_condition_fn=_soon,
)
async def fetch_setting_values(instance: Instance, environment: JobEnvironment, setting: str) -> None:
    """Put a setting's values beside it for the jobs to read; they were written before the secrets, so five tries are plenty."""
    await instance.fetch_setting_values(environment, setting)


@step("worker-setup")
async def worker_setup(instance: Instance, environment: JobEnvironment) -> None:
    """Run the person's own script, as root."""
    await instance.set_up(environment)


@step("hand-over")
async def hand_over(instance: Instance, environment: JobEnvironment) -> None:
    """Make what jobs write to their user's own."""
    await instance.hand_over(environment)


@step("run-jobs")
async def run_jobs(instance: Instance, environment: JobEnvironment) -> None:
    """Take jobs until there are none; told to stop, give back those in flight."""
    with stop_on_sigterm() as stop:
        await instance.run_jobs(environment, stop)


@flow(name="fleet-worker", persist_result=False)
async def fleet_worker(order: WorkerOrder) -> State[Any]:
    """Work on an order's jobs. When this ends, no job is held by this instance and no secret is in its memory.

    A step that fails ends it with one line: which step, why, what to do. One that EC2 takes back has done what fits, and is
    `Interrupted`: a kind of Completed, since nothing failed. Killed without a word, its jobs come back to the queue when their
    leases lapse.
    """
    async with on_duty(order, worker=str(flow_run.get_id()), name=str(flow_run.get_name() or ""), say=_say) as instance:
        if order.needs_docker:
            await prepare_host(instance)
        if order.secrets_parameter:
            await fetch_secrets(instance)
        if order.needs_docker:
            await docker_login(instance)
            await check_gpu(instance)
        if instance.jobs_user:
            await prepare_user(instance)
        environment = await install_code(instance)
        for setting in order.setting_values:
            await fetch_setting_values(instance, environment, setting)
        if order.worker_setup:
            await worker_setup(instance, environment)
        if instance.jobs_user:
            await hand_over(instance, environment)
        await run_jobs(instance, environment)
    if instance.failed:
        return Failed(message=instance.ended)
    return Completed(name=STATE_NAMES.get(instance.reason, "Completed"), message=instance.ended)
