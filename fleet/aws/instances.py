"""EC2 instances: launch, tag, describe, terminate. The only file that calls RunInstances.

Every instance carries its pool's tag from the first moment, so that what a killed process leaves can be found by it. Who asks
for instances, and that none runs unrecorded, is `fleet.aws.hunt`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from fleet.aws.batches import in_one, refused_of
from fleet.aws.capacity import Candidate, Market, Refusal
from fleet.aws.failures import AwsRefused, calling
from fleet.aws.search import Ask

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, TagTypeDef

    from fleet.aws.session import Aws

LAUNCH_TAG = "inspect-fleet:launch"
"""Tag with the group of attempts that launched an instance: finds the ones whose answer was lost."""
LEAVING = frozenset({"shutting-down", "terminated"})
"""States from which an instance never comes back."""
UNKNOWN_INSTANCE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
TERMINATE_AT_ONCE = 1_000
"""Instance ids that one TerminateInstances takes."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as EC2 describes it."""

    id: str
    region: str
    state: str
    """pending, running, stopping, stopped, shutting-down or terminated."""
    instance_type: str
    market: Market
    launched_at: datetime.datetime
    tags: Mapping[str, str]
    reason_code: str = ""
    reason: str = ""
    """Why it left its last state, in EC2's words; empty while it runs."""

    @property
    def identifier(self) -> str:
        """`<region>::<instance id>`: what a flow run records as its infrastructure."""
        return f"{self.region}::{self.id}"

    @property
    def leaving(self) -> bool:
        """Whether it is gone, or can't be kept from going."""
        return self.state in LEAVING


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """Everything about an instance but where it is looked for. Equal orders can be asked for together."""

    attempt: str
    """The group of attempts that it is for, new each time: the launch tag, from which nothing else derives."""
    image: str
    root_device: str
    """The image's own name of its root volume, such as /dev/xvda: a size goes to that volume only by this name."""
    user_data: str
    tags: Mapping[str, str]
    """What every instance of the group carries, its pool above all; what is one instance's own comes by `Instances.tag`."""
    security_groups: tuple[str, ...] = ()
    """Ids (sg-…); names work in the default VPC only, EC2's rule."""
    instance_profile: str | None = None
    volume_gb: int = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """What one ask gave."""

    instances: tuple[Instance, ...]
    refusals: tuple[Refusal, ...] = ()
    """Where several places were asked together: those that refused."""


class TerminationRefused(AwsRefused):
    """EC2 refused to end some of the instances; the others go. Code and reason are those of the first one that was refused."""

    codes: Mapping[str, str]
    """Those that were refused, each with EC2's code."""
    unknown: frozenset[str]
    """Those that EC2 doesn't know."""


def launch_arguments(order: LaunchOrder, candidate: Candidate, *, count: int = 1, token: str = "") -> dict[str, Any]:
    """The arguments of RunInstances for up to `count` instances of one candidate."""
    arguments: dict[str, Any] = {
        **shape(order),
        "InstanceType": candidate.instance_type,
        "MinCount": 1,
        "MaxCount": count,
        "TagSpecifications": tag_specifications(order, spot=candidate.market == "spot"),
    }
    if token:
        arguments["ClientToken"] = token
    if candidate.market == "spot":
        arguments["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    if candidate.subnet:
        arguments["SubnetId"] = candidate.subnet
    return arguments


def shape(order: LaunchOrder) -> dict[str, Any]:
    """What is the same for every candidate, as RunInstances and launch templates take it (these with the user data encoded)."""
    arguments: dict[str, Any] = {
        "ImageId": order.image,
        "UserData": order.user_data,
        # The machine's own power-off is how it ends: it must not stay, stopped and billed for its volume.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            # One hop: the token's answer doesn't cross into a container, so a sample can't take the machine's role.
            "HttpPutResponseHopLimit": 1,
            # By its tags an instance learns which flow run it is for: user data is one for a whole group.
            "InstanceMetadataTags": "enabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": order.root_device,
                "Ebs": {
                    "VolumeType": "gp3",
                    "VolumeSize": order.volume_gb,
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
    }
    # No public address is asked for or forbidden: that is the subnet's own setting, and its owner's decision.
    if ids := [group for group in order.security_groups if group.startswith("sg-")]:
        arguments["SecurityGroupIds"] = ids
    if names := [group for group in order.security_groups if not group.startswith("sg-")]:
        arguments["SecurityGroups"] = names
    if order.instance_profile:
        by = "Arn" if order.instance_profile.startswith("arn:") else "Name"
        arguments["IamInstanceProfile"] = {by: order.instance_profile}
    return arguments


def tag_specifications(order: LaunchOrder, *, spot: bool = False) -> list[dict[str, Any]]:
    """The tags of everything that a launch makes. A spot request can be tagged only where there is one."""
    kinds = ("instance", "volume", "network-interface", *(("spot-instances-request",) if spot else ()))
    return [{"ResourceType": kind, "Tags": tag_list({**order.tags, LAUNCH_TAG: order.attempt})} for kind in kinds]


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 writes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


class Instances:
    """The instances of one region. Blocking: call it from a thread. Raises AwsRefused for what AWS refuses."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self.region = aws.region

    def ask(self, order: LaunchOrder, ask: Ask) -> Answer:
        """Ask once for up to so many instances in one place; no retries of botocore's."""
        (place,) = ask.places
        with calling("ec2", f"{place.instance_type} in {self.region}"):
            answer = self.aws.ec2_once.run_instances(**launch_arguments(order, place, count=ask.count, token=ask.token))
        return Answer(tuple(_seen(found, self.region) for found in answer["Instances"]))

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Write these tags on an instance, once; a new one may not be known to EC2 yet."""
        with calling("ec2", f"{instance_id} in {self.region}"):
            self.aws.ec2_once.create_tags(Resources=[instance_id], Tags=cast("list[TagTypeDef]", tag_list(tags)))

    def find(self, tags: Mapping[str, str]) -> list[Instance]:
        """All instances with these tags, also those that ended within about the last hour."""
        pages = self.aws.ec2.get_paginator("describe_instances")
        with calling("ec2", f"instances in {self.region}"):
            return [
                _seen(found, self.region)
                for page in pages.paginate(
                    Filters=[{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()],
                    PaginationConfig={"PageSize": 1_000},
                )
                for reservation in page["Reservations"]
                for found in reservation["Instances"]
            ]

    def get(self, instance_id: str) -> Instance | None:
        """One instance; None where EC2 doesn't know it: for some seconds after its launch, and an hour after its end."""
        try:
            with calling("ec2", f"{instance_id} in {self.region}"):
                answer = self.aws.ec2.describe_instances(InstanceIds=[instance_id])
        except AwsRefused as refused:
            if refused.code in UNKNOWN_INSTANCE:
                return None
            raise
        found = [each for reservation in answer["Reservations"] for each in reservation["Instances"]]
        return _seen(found[0], self.region) if found else None

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        """Ask for the end of these; answers the ids that EC2 doesn't know. Ended ones are no error.

        TerminationRefused: some of several were refused, and the others go.
        """
        refusals = refused_of(ids, self._terminate, at_once=TERMINATE_AT_ONCE)
        unknown = frozenset(each for each, refused in refusals.items() if refused.code in UNKNOWN_INSTANCE)
        refusals = {each: refused for each, refused in refusals.items() if each not in unknown}
        if not refusals:
            return unknown
        refused = in_one(refusals, where=f" in {self.region}")
        if len(ids) == 1:
            raise refused
        codes = {each: one.code for each, one in refusals.items()}
        raise TerminationRefused(**vars(refused), codes=codes, unknown=unknown)

    def _terminate(self, ids: Sequence[str]) -> None:
        with calling("ec2", f"{', '.join(ids)} in {self.region}"):
            self.aws.ec2.terminate_instances(InstanceIds=list(ids))

    def root_device(self, image: str) -> str:
        """The name of the image's root volume."""
        with calling("ec2", f"{image} in {self.region}"):
            answer = self.aws.ec2.describe_images(ImageIds=[image])
        return next((found["RootDeviceName"] for found in answer["Images"] if found.get("RootDeviceName")), "/dev/xvda")


def _seen(found: InstanceTypeDef, region: str) -> Instance:
    reason = found.get("StateReason") or {}
    return Instance(
        id=found["InstanceId"],
        region=region,
        state=found["State"]["Name"],
        instance_type=found["InstanceType"],
        market="spot" if found.get("InstanceLifecycle") == "spot" else "on-demand",
        launched_at=found["LaunchTime"],
        tags={tag["Key"]: tag["Value"] for tag in found.get("Tags", [])},
        reason_code=reason.get("Code", ""),
        reason=reason.get("Message", "") or found.get("StateTransitionReason", ""),
    )
