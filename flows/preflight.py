"""May this AWS identity do what a run needs? Asked by harmless questions before anything is created; also on its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from blocks.account import FleetAccount, fleet_account
from blocks.ec2_config import Ec2Config
from fleet.aws.identity import caller
from fleet.aws.images import check_image
from fleet.aws.instances import LaunchOrder
from fleet.aws.network import look
from fleet.aws.permissions import Finding, Outcome, PermissionsMissing, Role, missing
from fleet.aws.preflight import findings, launch_scope, require
from fleet.aws.probes import Scope
from fleet.errors import FleetError
from fleet.pool.order import POOL_TAG

Asked = Literal["runs", "controller", "launcher", "operator"]
"""A role, or both that a run needs."""


@flow(name="preflight", flow_run_name="check permissions in {config.region}")
def preflight(config: Ec2Config = Ec2Config(), account: str = "default", role: Asked = "runs") -> None:
    """Try each permission with the AWS identity that runs this flow, and show what was found as a table. Nothing is created.

    PermissionsMissing names the missing ones with what they are needed for.

    Args:
        config: The fleet whose launch is tried.
        account: Name of the Fleet Account block.
        role: controller: runs evals. launcher: the pool worker. operator: sets the account up. runs: the first two.
    """
    home = fleet_account(account)
    config = home.settled(config)
    aws = home.site(config.region).aws
    who = caller(aws)
    roles: tuple[Role, ...] = ("controller", "launcher") if role == "runs" else (role,)
    found = {one: findings(aws, one, scope_of(one, home, config), thorough=True) for one in roles}
    create_table_artifact(
        [row for one, some in found.items() for row in rows(one, some)],
        key="permissions",
        description=f"What {who.arn} may do in {config.region}",
    )
    lacking = [
        PermissionsMissing(role=one, who=who.arn, region=config.region, missing=tuple(lacks))
        for one, some in found.items()
        if (lacks := missing(some))
    ]
    for error in lacking:
        get_run_logger().error("%s", error)
    if lacking:
        raise lacking[0]
    get_run_logger().info("%s has every permission that could be checked: %s", who.name, ", ".join(roles))


@task(name="check-permissions", task_run_name="check-permissions", cache_policy=NO_CACHE)
def check_permissions(home: FleetAccount, config: Ec2Config, *, secrets: bool) -> None:
    """Try a controller's permissions for one run; `secrets`: whether it hands some to its instances. PermissionsMissing."""
    scope = controller_scope(home, config, secrets=secrets)
    for finding in require(home.site(config.region).aws, "controller", scope):
        if finding.outcome is Outcome.REFUSED:
            get_run_logger().warning("%s", finding.line())


def scope_of(role: Role, home: FleetAccount, config: Ec2Config) -> Scope:
    """On what a role's permissions are tried in this account."""
    if role != "launcher":
        return controller_scope(home, config, secrets=True)
    try:
        return launcher_scope(home, config)
    except FleetError as error:
        get_run_logger().warning("No launch was tried: %s", error)
        return Scope(image_parameter=image_parameter(home, config))


def controller_scope(home: FleetAccount, config: Ec2Config, *, secrets: bool) -> Scope:
    """What a run touches."""
    return Scope(
        bucket=home.bucket,
        bucket_region=home.region,
        prefix=home.prefix,
        parameter_path=home.parameter_path if secrets else "",
        image_parameter=image_parameter(home, config),
    )


def launcher_scope(home: FleetAccount, config: Ec2Config) -> Scope:
    """A launch as the pool worker would ask for it. FleetError: it couldn't be launched at all, or AWS may not be asked."""
    aws = home.site(config.region).aws
    types = [config.instance_type, *config.instance_type_fallbacks]
    image = check_image(
        aws,
        requested=config.ami,
        default_parameter=home.image_parameter,
        instance_types=types,
        volume_gb=config.volume_gb,
    )
    subnets, groups = home.network(config.region)
    network = look(aws, subnets=subnets, groups=groups, instance_types=types)
    tags = {POOL_TAG: "preflight"}
    order = LaunchOrder(
        attempt="preflight",
        image=image.id,
        root_device=image.root_device,
        user_data="#!/bin/bash\n",
        tags=tags,
        instance_profile=home.instance_profile,
        volume_gb=config.volume_gb,
    )
    place = network.places(types, "spot" if config.spot else "on-demand")[0]
    return launch_scope(order, place, network, tags, image_parameter=image_parameter(home, config))


def image_parameter(home: FleetAccount, config: Ec2Config) -> str:
    """The parameter that names the image; empty: it is named by id."""
    source = (config.ami or "").strip() or home.image_parameter
    return source if source.startswith("/") else ""


def rows(role: Role, found: Iterable[Finding]) -> list[dict[str, str]]:
    """A line of the table for each permission."""
    return [
        {
            "role": role,
            "permission": finding.permission.action,
            "outcome": finding.outcome.value,
            "needed to": finding.permission.why,
            "without it": finding.permission.without or "nothing works",
            "AWS says": finding.detail,
        }
        for finding in found
    ]
