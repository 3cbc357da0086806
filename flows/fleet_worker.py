"""The flow on each instance of a fleet: it fetches what it needs, then takes jobs until there are none.

Its steps are task runs, so that the Prefect UI shows where each instance is, with its log and the seconds since its boot.
What a step does stands in `bootstrap`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run
from prefect.states import Completed

from bootstrap.instance import Instance, on_duty
from bootstrap.secrets import JITTER, LATER, RETRIES, RETRY_DELAYS, SETTING_DELAYS, SOON
from bootstrap.stopping import stop_on_sigterm
from bootstrap.uptime import stamp
from fleet.evals.documents import WorkerOrder

if TYPE_CHECKING:
    from bootstrap.environment import JobEnvironment


def _say(text: str) -> None:
    get_run_logger().info(f"{stamp()} {text}")


def _later(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """The parameter's write or its tag has not landed, or SSM doesn't answer: what waiting mends."""
    return isinstance(state.data, LATER)


def _soon(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """The tag of a parameter that is written has not landed, or all instances ask at once."""
    return isinstance(state.data, SOON)


# Nothing is cached or persisted: a step's effect is on this machine and in this process, secrets among it.
@task(
    name="fetch-secrets",
    task_run_name="fetch-secrets",
    retries=RETRIES,
    retry_delay_seconds=RETRY_DELAYS,
    retry_jitter_factor=JITTER,
    retry_condition_fn=_later,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def fetch_secrets(instance: Instance) -> None:
    """Get the run's secrets into memory; retried for up to 15 minutes, since the instance may be faster than the write."""
    await instance.fetch_secrets()


@task(name="prepare-host", task_run_name="prepare-host", cache_policy=NO_CACHE, persist_result=False)
async def prepare_host(instance: Instance) -> None:
    """Check that containers can run here in numbers."""
    await instance.prepare_host()


@task(name="install-code", task_run_name="install-code", cache_policy=NO_CACHE, persist_result=False)
async def install_code(instance: Instance) -> JobEnvironment:
    """Build the job environment, the same as the planner's."""
    return await instance.install_code()


@task(
    name="fetch-setting-values",
    task_run_name="fetch-setting-values {setting}",
    retries=len(SETTING_DELAYS),
    retry_delay_seconds=SETTING_DELAYS,
    retry_condition_fn=_soon,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def fetch_setting_values(instance: Instance, environment: JobEnvironment, setting: str) -> None:
    """Put a setting's values beside it for the jobs to read; they were written before the secrets, so five tries are plenty."""
    await instance.fetch_setting_values(environment, setting)


@task(name="run-jobs", task_run_name="run-jobs", cache_policy=NO_CACHE, persist_result=False)
async def run_jobs(instance: Instance, environment: JobEnvironment) -> None:
    """Take jobs until there are none; told to stop, give back those in flight."""
    with stop_on_sigterm() as stop:
        await instance.run_jobs(environment, stop)


@flow(name="fleet-worker", persist_result=False)
async def fleet_worker(order: WorkerOrder) -> State[Any]:
    """Work on an order's jobs. When this ends, no job is held by this instance and no secret is in its memory.

    Killed without a word, its jobs come back to the queue when their leases lapse.
    """
    async with on_duty(order, worker=str(flow_run.get_id()), say=_say) as instance:
        if order.secrets_parameter:
            await fetch_secrets(instance)
        if order.needs_docker:
            await prepare_host(instance)
        environment = await install_code(instance)
        for setting in order.setting_values:
            await fetch_setting_values(instance, environment, setting)
        await run_jobs(instance, environment)
    return Completed(message=instance.ended)
