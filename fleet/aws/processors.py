"""How many vCPUs instance types have: what limits the jobs that one of them runs at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.aws.failures import PASSING, AwsRefused, calling
from fleet.aws.session import Aws

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import InstanceTypeType
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeInfoTypeDef

log = logging.getLogger(__name__)


def vcpus(aws: Aws, instance_types: Sequence[str]) -> Mapping[str, int]:
    """The vCPUs of each type. Empty where EC2 may not be asked, or knows one of them not: then nothing is said of any.

    AwsRefused: of what time mends.
    """
    wanted: list[InstanceTypeType] = list(dict.fromkeys(instance_types))  # type: ignore[arg-type]  # EC2 knows newer ones
    return _asked(
        f"{', '.join(wanted)} in {aws.region}",
        lambda: aws.ec2.describe_instance_types(InstanceTypes=wanted)["InstanceTypes"],
    )


def vcpus_of_family(aws: Aws, instance_type: str) -> Mapping[str, int]:
    """The same of each type that is this one in another size, and of itself: to compare, so that nothing fails for it."""
    family = f"{instance_type.partition('.')[0]}.*"
    pages = aws.ec2.get_paginator("describe_instance_types")
    filters: list[FilterTypeDef] = [{"Name": "instance-type", "Values": [family]}]
    try:
        return _asked(
            f"{family} in {aws.region}",
            lambda: [found for page in pages.paginate(Filters=filters) for found in page["InstanceTypes"]],
        )
    except AwsRefused as refused:
        log.info("other sizes of %s aren't known: %s", instance_type, refused)
        return {}


def _asked(what: str, ask: Callable[[], Sequence[InstanceTypeInfoTypeDef]]) -> Mapping[str, int]:
    """The vCPUs in EC2's answer; none where it refuses for good."""
    try:
        with calling("ec2", what):
            return {found["InstanceType"]: found["VCpuInfo"]["DefaultVCpus"] for found in ask()}
    except AwsRefused as refused:
        if refused.code in PASSING:
            raise
        log.warning("how many jobs an instance can run at a time isn't known: %s", refused)
        return {}
