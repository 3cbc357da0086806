"""All that a run needs, looked at: the stack and each of its resources, the worker image, permissions, the Prefect server.

Nothing is changed. What is missing comes with why it matters and what helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.account import names, resources
from fleet.account.commands import setup_command
from fleet.account.findings import Finding
from fleet.account.rendering import Rendering
from fleet.account.stack import StackState, is_current, wanted_parameters
from fleet.aws import preflight
from fleet.aws.commands import fleet_command
from fleet.aws.failures import Denied
from fleet.aws.identity import Caller, caller
from fleet.aws.images import AmiRejected, InstanceTypeUnknown, check_image
from fleet.aws.permissions import Finding as PermissionFinding
from fleet.aws.permissions import Role
from fleet.aws.probes import Scope

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

    from fleet.aws.session import Aws

BLOCK_FIELDS = {
    "Bucket": "bucket",
    "Prefix": "prefix",
    "InstanceProfile": "instance_profile",
}
"""Outputs of the stack, and the fields of the account's block that they fill."""
DEFAULT_TYPE = "c7i.4xlarge"
"""What the worker image is checked for: a run checks it again, for its own types."""


def block_values(region: str, state: StackState) -> dict[str, Any]:
    """What the account's block says of a stack. The group is found by its name in each VPC, so that it is named nowhere."""
    values: dict[str, Any] = {"region": region, "image_parameter": names.IMAGE_PARAMETER}
    values |= {field: state.outputs[output] for output, field in BLOCK_FIELDS.items() if output in state.outputs}
    if "Subnets" in state.outputs:
        values["subnets"] = state.outputs["Subnets"].split(",")
    return values


def rendering(who: Caller, region: str, state: StackState) -> Rendering:
    """The template as it comes out for this stack."""
    return Rendering(
        account=who.account,
        region=region,
        partition=who.arn.split(":")[1],
        stack=state.name,
        parameters=wanted_parameters(state, {}),
    )


def check_account(aws: Aws, state: StackState) -> list[Finding]:
    """The AWS side. AwsRefused: nobody could be asked at all."""
    who = caller(aws)
    found = [_stack(aws.region, state)]
    rendered = rendering(who, aws.region, state)
    if state.exists:
        found += resources.look(aws, rendered, vpc=state.parameters.get("VpcId", ""))
    found.append(_image(aws))
    scope = Scope(
        bucket=state.outputs.get("Bucket", ""),
        bucket_region=aws.region,
        prefix=state.outputs.get("Prefix", names.PREFIX),
    )
    roles: tuple[Role, ...] = ("controller", "launcher") if state.exists else ()
    return found + [_permissions(aws, role, scope) for role in roles]


async def check_server(
    client: PrefectClient, account: Mapping[str, Any], definition: Path, setup: str
) -> list[Finding]:
    """The Prefect side; `setup`: the command that mends it."""
    from fleet.account.server import differences, idle_pools

    wrong = [
        Finding(
            f"{one.kind} {one.name}",
            "missing" if one.missing else "different",
            one.detail or "it isn't there",
            one.why(),
            f"`{setup}` {'makes it again' if one.missing else 'brings it up to date'}",
        )
        for one in await differences(client, account, definition)
    ]
    idle = [
        Finding(
            f"pool worker of {pool}",
            "missing",
            "none is running",
            "runs sent to this pool wait for one",
            f"start one where it has AWS credentials: `prefect worker start --pool {pool}`",
        )
        for pool in await idle_pools(client)
    ]
    return [*wrong, *idle] or [Finding("Prefect server: pools, block types, account block, deployments", "ok")]


def no_server(region: str, state: StackState) -> Finding:
    """There is no Prefect API to look at. That of a control plane is seen through a tunnel only."""
    if state.has_control_plane:
        through = f"{fleet_command(region, 'connect')} -- {setup_command(region, state.name, '--check')}"
        helps = f"the control plane's: `{through}`; another: set PREFECT_API_URL"
    else:
        plane = setup_command(region, state.name, "--param", "ControlPlane=running")
        helps = f"set PREFECT_API_URL (`prefect cloud login` does), or add a control plane: `{plane}`"
    return Finding(
        "Prefect API",
        "missing",
        "none is configured",
        "runs are started and seen there, and instances report to it",
        helps,
    )


def _stack(region: str, state: StackState) -> Finding:
    what = f"stack {state.name} in {region}"
    setup = setup_command(region, state.name)
    if not state.exists:
        why = "it makes the bucket, the worker role and the security group"
        return Finding(what, "missing", "it isn't there", why, f"`{setup}` makes it")
    if state.status.endswith("_IN_PROGRESS"):
        return Finding(what, "different", state.status, "it is being changed", "wait")
    if not is_current(state, {}):
        why = "what this version needs may not be there"
        return Finding(what, "different", "it isn't this version's template", why, f"`{setup}` shows what would change")
    return Finding(what, "ok", state.status)


def _image(aws: Aws) -> Finding:
    what = f"worker image {names.IMAGE_PARAMETER}"
    try:
        image = check_image(aws, requested=None, default_parameter=names.IMAGE_PARAMETER, instance_types=[DEFAULT_TYPE])
    except Denied as denied:
        return Finding(what, "unknown", f"this identity may not look ({denied.operation})")
    except (AmiRejected, InstanceTypeUnknown) as refusal:
        return Finding(what, "missing", str(refusal), "nothing can be launched without it")
    return Finding(what, "ok", image.label)


def _permissions(aws: Aws, role: Role, scope: Scope) -> Finding:
    found = preflight.findings(aws, role, scope)
    lacks = [one for one in found if one.blocks]
    what = f"permissions of this identity as {role}"
    if not lacks:
        return Finding(what, "ok", "as far as it can be asked")
    return Finding(
        what,
        "missing",
        ", ".join(one.permission.action for one in lacks),
        f"they are needed to {_reasons(lacks)}",
        f"attach the policy inspect-fleet-{role}",
    )


def _reasons(lacks: list[PermissionFinding]) -> str:
    return " and to ".join(dict.fromkeys(one.permission.why for one in lacks))
