"""What `fleet setup` gives a control plane: its order, with this version's code in the bucket, and its server's auth string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.account.stack import CONTROL_PLANE
from fleet.aws.commands import aws_command, fleet_command
from fleet.aws.failures import AwsRefused
from fleet.aws.objects import Objects
from fleet.aws.session import Aws
from fleet.aws.sessions import InstanceAbsent, find_tagged
from fleet.evals.layout import Layout
from fleet.pool.code import code_archive
from fleet.services.control_plane import (
    LOGS,
    TAG,
    ControlPlaneOrder,
    account_of,
    ensure_auth,
    put_order,
    read_order,
)
from fleet.wire import DocumentRefused


def give_order(aws: Aws, outputs: Mapping[str, str], account: Mapping[str, Any]) -> list[str]:
    """Order and auth string for the control plane of a stack with these outputs; `account`: fields of the account's block.

    Answers what a person should know. An order that says the same already is left. AwsRefused.
    """
    objects, layout = Objects(aws, outputs["Bucket"]), Layout(outputs["Prefix"])
    sha256 = objects.put_artifact(layout, code_archive())
    ensure_auth(aws)
    order = ControlPlaneOrder(
        volume=outputs[CONTROL_PLANE],
        code=objects.uri(layout.artifact(sha256)),
        code_sha256=sha256,
        account=account_of(account),
        log_folder=objects.uri(layout.instance_logs(LOGS)),
    )
    if _known(aws) == order:
        return []
    put_order(aws, order)
    try:
        instance = find_tagged(aws, TAG).instance
    except InstanceAbsent:
        connect = fleet_command(aws.region, "connect")
        return [f"the control plane has its order; when its instance runs, `{connect}` leads to it"]
    end = aws_command(aws.region, "ec2", "terminate-instances", "--instance-ids", instance)
    return [
        f"the control plane has a new order. An instance that boots now takes it; {instance}, if it runs for longer, at its next "
        f"boot: `{end}`, between runs"
    ]


def _known(aws: Aws) -> ControlPlaneOrder | None:
    try:
        return read_order(aws)
    except DocumentRefused:
        return None
    except AwsRefused as refused:
        if refused.code == "ParameterNotFound":
            return None
        raise
