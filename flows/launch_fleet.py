"""Instances for a run: one flow run of the fleet worker each, on the ec2 pool, whose worker launches them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect import flow, get_run_logger, task

from blocks.account import FleetAccount, fleet_account
from blocks.ec2_config import Ec2Config
from fleet.evals.documents import WorkerOrder
from fleet.evals.preparation import tags_of
from fleet.pool.code import code_archive
from fleet.pool.runs import run_tag, start_worker
from flows.names import launch_name
from flows.passing import again

TOGETHER = 50
"""Instances that are asked for before the run is looked at again: Prefect takes a tenth of a second for each, and those that are
there already must not wait for their secrets, of which SSM takes three a second.
"""


@flow(name="launch-fleet", flow_run_name=launch_name)
def launch_fleet(
    order: WorkerOrder,
    image: str,
    count: int,
    config: Ec2Config = Ec2Config(),
    account: str = "default",
    owner: str = "unknown",
    key: str | None = None,
    first: int = 1,
    title: str | None = None,
) -> list[UUID]:
    """Ask for `count` instances that work on `order`; answers their flow runs. They are numbered from `first`, and named after
    the run's `title` (its id, where it has none).

    Asking twice for the same numbers of the same run (or `key`) starts nothing twice.
    """
    deployment = fleet_account(account)
    variables = job_variables(order, image, config, deployment, owner=owner, code=upload_code(order, account))
    workers = [
        start_worker(
            order,
            name=f"worker {number} of {title or order.run[:8]}",
            key=f"{key or order.run}-{number}",
            job_variables=variables,
            tags=[run_tag(order.run), *order.eval_ids[:9]],
        )
        for number in range(first, first + count)
    ]
    get_run_logger().info("Asked for %d × %s", count, config.instance_type)
    return workers


def batches(count: int) -> list[int]:
    """How many of `count` instances are asked for at a time."""
    whole, rest = divmod(count, TOGETHER)
    return [TOGETHER] * whole + [rest] * bool(rest)


@task(name="upload-code", task_run_name="upload-code", **again())
def upload_code(order: WorkerOrder, account: str) -> str:
    """Put this version's code where the instances fetch it; answers its SHA-256."""
    site = fleet_account(account).site(order.region)
    return site.objects.put_artifact(site.layout, code_archive())


def job_variables(
    order: WorkerOrder, image: str, config: Ec2Config, account: FleetAccount, *, owner: str, code: str
) -> dict[str, Any]:
    """What the ec2 pool is told about each instance of a fleet. Ids, names and addresses only."""
    site = account.site(order.region)
    subnets, security_groups = account.network(order.region)
    return {
        "image": image,
        "command": "fleet-python -m bootstrap.engine",
        "instance_types": [config.instance_type, *config.instance_type_fallbacks],
        "region": config.region,
        "subnets": subnets,
        "security_groups": security_groups,
        "instance_profile": account.instance_profile,
        "market": "spot" if config.spot else "on-demand",
        "volume_gb": config.volume_gb,
        "max_hours": config.max_hours,
        "boot_seconds": config.boot_seconds,
        "api_key_parameter": account.api_key_parameter or None,
        "api_auth_parameter": account.api_auth_parameter or None,
        "tags": {**config.tags, **tags_of(order.run, order.eval_ids, owner)},
        "code": site.objects.uri(site.layout.artifact(code)),
        "code_sha256": code,
        "log_folder": site.objects.uri(site.layout.instance_logs(order.run)),
    }
