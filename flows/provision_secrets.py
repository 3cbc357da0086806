"""Each instance's secrets, written as soon as its id is known; it is booting meanwhile, and retries until they are there."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from blocks.secrets import secret_values
from fleet.aws.failures import AwsRefused
from fleet.aws.identity import Caller, caller
from fleet.aws.parameters import INSTANCE_TAG
from fleet.evals.preparation import RUN_TAG
from fleet.evals.progress import WorkerFacts
from fleet.evals.site import Site
from fleet.pool.runs import look_at, stop
from flows.names import secrets_name


@flow(name="provision-secrets", flow_run_name=secrets_name)
def provision_secrets(
    run: str,
    path: str,
    workers: list[UUID],
    secrets: list[str],
    worker_secrets: str | None = None,
    config: Ec2Config = Ec2Config(),
    account: str = "default",
) -> dict[str, str]:
    """Write a parameter below `path` for each of these workers' instances; answers those that got none, with the reason.

    Takes names, never values: parameters of a flow are shown to everybody. An instance whose parameter can't be written is
    asked to end and named; the others go on. Workers without an instance are passed over: it is asked for again when they have one.
    """
    site = cast("FleetAccount", FleetAccount.load(account)).site(config.region)
    values = _Hidden(secret_values(secrets, worker_secrets))
    me = caller(site.aws)
    without: dict[str, str] = {}
    for worker in look_at(workers):
        if worker.instance and not worker.over:
            write = write_secrets.with_options(task_run_name=f"write {worker.instance}")
            if refused := write(site, run, path, worker, values=values, me=me):
                without[worker.instance] = refused
    return without


class _Hidden:
    """Values on their way to a task: Prefect may show an argument, so this one shows nothing."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def reveal(self) -> dict[str, str]:
        return self._values

    def __repr__(self) -> str:
        return "<secrets>"


@task(name="write-secrets", persist_result=False, cache_policy=NO_CACHE)
def write_secrets(site: Site, run: str, path: str, worker: WorkerFacts, *, values: _Hidden, me: Caller) -> str:
    """One instance's parameter, tagged with the instance's ARN so that only it can read it; answers why it couldn't be written."""
    name = f"{path}/{worker.instance}"
    try:
        site.parameters.put_secret(
            name, values.reveal(), {INSTANCE_TAG: me.instance_arn(site.region, str(worker.instance)), RUN_TAG: run}
        )
    except AwsRefused as refused:
        get_run_logger().error("%s gets no secrets and is ended: %s", worker.instance, refused)
        stop([UUID(worker.run_id)], why=f"its secrets could not be written: {refused}")
        return str(refused)
    get_run_logger().info("Wrote %s", name)
    return ""
