"""Each instance's secrets, written as soon as its id is known; it is booting meanwhile, and retries until they are there."""

from __future__ import annotations

import time
from typing import cast
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from blocks.secrets import secret_values
from fleet.aws.failures import AwsRefused
from fleet.aws.identity import caller
from fleet.evals.progress import WorkerFacts
from fleet.evals.site import Site
from fleet.pool.runs import look_at, stop

LOOK_S = 0.5


@flow(name="provision-secrets", flow_run_name="secrets for {run}")
def provision_secrets(
    run: str,
    workers: list[UUID],
    secrets: list[str],
    worker_secrets: str | None = None,
    config: Ec2Config = Ec2Config(),
    account: str = "default",
) -> dict[str, str]:
    """Write one parameter for each of these workers' instances; answers those that got none, with the reason.

    Takes names, never values: parameters of a flow are shown to everybody. An instance whose parameter can't be written is
    asked to end and named; the others go on. Ends when every worker has an instance or is over.
    """
    site = cast("FleetAccount", FleetAccount.load(account)).site(config.region)
    values = secret_values(secrets, worker_secrets)
    account_id = caller(site.aws).account
    waiting = set(workers)
    without: dict[str, str] = {}
    while waiting:
        for worker in look_at(sorted(waiting)):
            if worker.instance and not worker.over:
                if refused := write_secrets.with_options(task_run_name=f"write {worker.instance}")(
                    site, run, worker, values=_Hidden(values), account_id=account_id
                ):
                    without[worker.instance] = refused
                waiting.discard(UUID(worker.run_id))
            elif not worker.phase.alive:
                waiting.discard(UUID(worker.run_id))
        if waiting:
            time.sleep(LOOK_S)
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
def write_secrets(site: Site, run: str, worker: WorkerFacts, *, values: _Hidden, account_id: str) -> str:
    """One instance's parameter, tagged with the instance's ARN so that only it can read it; answers why it couldn't be written."""
    name = f"{site.secrets_of(run)}/{worker.instance}"
    arn = f"arn:aws:ec2:{site.region}:{account_id}:instance/{worker.instance}"
    try:
        site.parameters.put_secret(name, values.reveal(), {"InstanceArn": arn, "inspect-fleet:run": run})
    except AwsRefused as refused:
        get_run_logger().error("%s gets no secrets and is ended: %s", worker.instance, refused)
        stop([UUID(worker.run_id)], why=f"its secrets could not be written: {refused}")
        return str(refused)
    get_run_logger().info("Wrote %s", name)
    return ""
