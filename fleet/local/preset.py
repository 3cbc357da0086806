"""What the local cloud's account holds before anyone asks for anything. Constants only: importing this costs nothing.

The same names are what the account template creates on AWS, so that the product finds them by the same defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleet.account import names

ACCOUNT = "123456789012"
REGION = "us-east-1"
BUCKET = names.bucket(ACCOUNT, REGION)
ROLE = names.ROLE
PROFILE = names.PROFILE
SECURITY_GROUP = names.SECURITY_GROUP
"""Name of a group in the default VPC that lets nothing in."""
IMAGE_PARAMETER = names.IMAGE_PARAMETER
"""The SSM parameter that names `IMAGE`."""
STACK_PARAMETERS: dict[str, str] = {}
"""What the account's stack is given beside the template's defaults: nothing the emulator lacks is among those."""


@dataclass(frozen=True, slots=True)
class Image:
    """An AMI of the account, in `REGION` and nowhere else."""

    id: str
    name: str
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    state: Literal["available", "pending", "failed"] = "available"
    reason: str = ""
    """Why it is in that state, as DescribeImages says."""


IMAGE = "ami-0f1ee7000000000a1"
IMAGE_ARM64 = "ami-0f1ee7000000000a2"
IMAGE_PENDING = "ami-0f1ee7000000000a3"
IMAGE_FAILED = "ami-0f1ee7000000000a4"

IMAGES = (
    Image(IMAGE, "inspect-fleet-worker"),
    Image(IMAGE_ARM64, "inspect-fleet-worker-arm64", architecture="arm64"),
    Image(IMAGE_PENDING, "inspect-fleet-worker-pending", state="pending"),
    Image(IMAGE_FAILED, "inspect-fleet-worker-failed", state="failed", reason="Client.InternalError: Client error"),
)
