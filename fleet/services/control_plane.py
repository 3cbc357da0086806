"""The control plane as all sides know it: the order it works by, its names, its boot script, and how it gets its order.

One small private instance runs Prefect's server and the pool workers. Its user data names one SSM parameter; the order in it
names the rest, so that a new version of the code, or another volume, needs no new launch template.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, ClassVar, Literal

from pydantic import Field

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.session import Aws
from fleet.wire import Wire

TAG = "inspect-fleet:control-plane"
"""Tag of the instance and of its volume; its value is the deployment's name."""
PORT = 4200
ORDER_PARAMETER = "/inspect-fleet/control-plane"
AUTH_PARAMETER = "/inspect-fleet/shared/prefect-auth"
"""Under `shared/`, which every instance of this deployment may read: each of them talks to the server."""
USER = "fleet"
"""The name before the colon of an auth string that is made here."""
LOGS = "control-plane"
"""Where a run's id stands in the keys of logs."""


class ControlPlaneOrder(Wire):
    """What one control plane runs."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    volume: str = Field(pattern=r"^vol-[0-9a-f]{8,17}$")
    """The volume with the server's database."""
    code: str = Field(pattern=r"^s3://[^/]+/.+$")
    code_sha256: str
    auth_parameter: str = AUTH_PARAMETER
    """SecureString with the server's auth string."""
    account: dict[str, Any] = {}
    """Fields of the block `fleet-account/default`."""
    log_folder: str | None = None
    """s3:// address under which each instance puts its log."""


def user_data(region: str, parameter: str = ORDER_PARAMETER) -> str:
    """The user data of a control plane in `region`. The account's template holds the same lines."""
    told = {"AWS_DEFAULT_REGION": region, "FLEET_CONTROL_PLANE": parameter}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in told.items()]
    return "\n".join(["#!/bin/bash", *lines, boot_script()])


def boot_script() -> str:
    """The part of the user data that is the same everywhere."""
    return files("fleet.services").joinpath("control_plane.sh").read_text(encoding="utf-8")


def read_order(aws: Aws, parameter: str = ORDER_PARAMETER) -> ControlPlaneOrder:
    """The order that a control plane finds. AwsRefused: it can't be read. DocumentRefused: it isn't one."""
    with calling("ssm", parameter):
        answer = aws.ssm.get_parameter(Name=parameter)
    return ControlPlaneOrder.read(answer["Parameter"]["Value"])


def put_order(aws: Aws, order: ControlPlaneOrder, parameter: str = ORDER_PARAMETER) -> None:
    """Give the order to the control plane that boots from now on. AwsRefused."""
    with calling("ssm", parameter):
        aws.ssm.put_parameter(
            Name=parameter,
            Value=order.write(),
            Type="String",
            Overwrite=True,
            Description="What the control plane of Inspect Fleet runs",
        )


def ensure_auth(aws: Aws, parameter: str = AUTH_PARAMETER) -> bool:
    """Make the server's auth string if there is none; whether it was made. It is never read here. AwsRefused."""
    try:
        with calling("ssm", parameter):
            aws.ssm.put_parameter(
                Name=parameter,
                Value=f"{USER}:{secrets.token_urlsafe(32)}",
                Type="SecureString",
                Description="Auth string of the Prefect server of Inspect Fleet",
            )
    except AwsRefused as refused:
        if refused.code == "ParameterAlreadyExists":
            return False
        raise
    return True


def account_of(fields: Mapping[str, Any], auth_parameter: str = AUTH_PARAMETER) -> dict[str, Any]:
    """The fields of the account's block for runs on a control plane: instances log in to its server by the auth string."""
    return {**json.loads(json.dumps(fields)), "api_key_parameter": "", "api_auth_parameter": auth_parameter}
