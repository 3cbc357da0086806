"""How many vCPUs instance types have: what limits the jobs that one of them runs at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.aws.failures import PASSING, AwsRefused, calling
from fleet.aws.session import Aws

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import InstanceTypeType

log = logging.getLogger(__name__)


def vcpus(aws: Aws, instance_types: Sequence[str]) -> Mapping[str, int]:
    """The vCPUs of each type. Empty where EC2 may not be asked, or knows one of them not: then nothing is said of any.

    AwsRefused: of what time mends.
    """
    wanted: list[InstanceTypeType] = list(dict.fromkeys(instance_types))  # type: ignore[arg-type]  # EC2 knows newer ones
    try:
        with calling("ec2", f"{', '.join(wanted)} in {aws.region}"):
            answer = aws.ec2.describe_instance_types(InstanceTypes=wanted)["InstanceTypes"]
    except AwsRefused as refused:
        if refused.code in PASSING:
            raise
        log.warning("how many jobs an instance can run at a time isn't known: %s", refused)
        return {}
    return {found["InstanceType"]: found["VCpuInfo"]["DefaultVCpus"] for found in answer}
