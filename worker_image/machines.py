"""The instances of a build: the one that is baked and the one that tries the image. Each lives for one build and no longer.

Not `fleet.aws.instances`, whose instances end by their own power-off: a builder stops then, since its disk is the product.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fleet.aws.capacity import Next, after_refusal
from fleet.aws.failures import AwsRefused, calling
from fleet.aws.instances import LEAVING, UNKNOWN_INSTANCE
from fleet.aws.network import look, settle
from worker_image.failures import ImageFailure, NotAllowed
from worker_image.names import BUILD_TAG, BuildNames
from worker_image.place import Place, denied_words

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

TRIES = 6
"""Of one place that EC2 is too busy for."""
CONSOLE_LINES = 15


class NoMachine(ImageFailure):
    """No instance could be had for the build."""

    region: str
    role: str
    refusals: tuple[str, ...]

    def message(self) -> str:
        """One line: what was tried, and EC2's answers."""
        return f"no {self.role} instance in {self.region}: {'; '.join(self.refusals)}"


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance of a build as EC2 describes it."""

    id: str
    state: str
    """pending, running, stopping, stopped, shutting-down, terminated; absent: EC2 doesn't know it (yet)."""
    build: str = ""
    launched: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MachineOrder:
    """What an instance of a build is."""

    names: BuildNames
    role: str
    """builder or canary."""
    image: str
    root_device: str
    user_data: str
    stops: bool
    """Whether its own power-off stops it, and leaves its disk, instead of terminating it."""


class Machines:
    """The instances of builds in one region. Raises NoMachine, NotAllowed, and AwsRefused for what else AWS refuses."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def launch(self, order: MachineOrder) -> str:
        """The id of a new instance, in the first place that has one. What a refused launch left is found by its tags."""
        place = self.place
        tags = order.names.machine_tags(order.role)
        network = look(
            place.aws,
            subnets=place.subnets,
            groups=place.security_groups,
            instance_types=order.names.recipe.types,
        )
        network = settle(place.aws, network, tags, clock=place.patience.clock, sleep=place.patience.sleep)
        refusals: list[str] = []
        for spot in network.places(order.names.recipe.types, "on-demand"):
            answer = self._ask(run_arguments(order, place, spot.instance_type, spot.subnet, network.groups), refusals)
            if answer:
                place.made.append(answer)
                place.say(f"{order.role} {answer}: {spot.instance_type} from {order.image}")
                return answer
        raise NoMachine(region=place.region, role=order.role, refusals=tuple(refusals))

    def _ask(self, arguments: dict[str, Any], refusals: list[str]) -> str:
        """An instance's id; empty: the next place may have one. The client token makes repeated calls one launch."""
        kind = arguments["InstanceType"]
        for tries in range(1, TRIES + 1):
            try:
                with calling("ec2", f"{kind} in {self.place.region}"):
                    return self.place.aws.ec2_once.run_instances(**arguments)["Instances"][0]["InstanceId"]
            except AwsRefused as refusal:
                if words := denied_words(refusal):
                    raise NotAllowed(what=words[0], why=words[1]) from refusal
                meaning = after_refusal(refusal.code)
                if meaning is Next.STOP:
                    raise
                if meaning is Next.CANDIDATE or tries == TRIES:
                    refusals.append(f"{kind}: {refusal.code}")
                    return ""
                self.place.patience.sleep(min(2.0**tries, 20.0))
        return ""

    def see(self, machine: str) -> Machine:
        """The instance now."""
        try:
            with calling("ec2", f"{machine} in {self.place.region}"):
                answer = self.place.aws.ec2.describe_instances(InstanceIds=[machine])
        except AwsRefused as refusal:
            if refusal.code in UNKNOWN_INSTANCE:
                return Machine(machine, "absent")
            raise
        found = [each for reservation in answer["Reservations"] for each in reservation["Instances"]]
        return _seen(found[0]) if found else Machine(machine, "absent")

    def of_builds(self, build: str | None = None) -> list[Machine]:
        """The instances of a build (None: of all builds) that aren't gone."""
        filters: list[FilterTypeDef] = [
            {"Name": "tag-key", "Values": [BUILD_TAG]}
            if build is None
            else {"Name": f"tag:{BUILD_TAG}", "Values": [build]}
        ]
        with calling("ec2", f"instances of image builds in {self.place.region}"):
            pages = self.place.aws.ec2.get_paginator("describe_instances").paginate(Filters=filters)
            found = [
                _seen(each)
                for page in pages
                for reservation in page["Reservations"]
                for each in reservation["Instances"]
            ]
        return [one for one in found if one.state not in LEAVING]

    def console(self, machine: str) -> str:
        """The last lines that it wrote on its console; empty where EC2 has none."""
        try:
            with calling("ec2", machine):
                output = self.place.aws.ec2.get_console_output(InstanceId=machine).get("Output", "")
        except AwsRefused:
            return ""  # a help for a person, who is told of a failure already
        return "\n".join(output.splitlines()[-CONSOLE_LINES:])


def run_arguments(
    order: MachineOrder, place: Place, instance_type: str, subnet: str | None, groups: Sequence[str]
) -> dict[str, Any]:
    """The arguments of RunInstances: nothing comes in, metadata version 2, an encrypted disk, tags from the first moment."""
    tags = [{"Key": key, "Value": value} for key, value in order.names.machine_tags(order.role).items()]
    by = "Arn" if place.instance_profile.startswith("arn:") else "Name"
    token = hashlib.sha256("\0".join((order.names.id, order.role, instance_type, subnet or "")).encode()).hexdigest()
    arguments: dict[str, Any] = {
        "ImageId": order.image,
        "InstanceType": instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": token,
        "UserData": order.user_data,
        "InstanceInitiatedShutdownBehavior": "stop" if order.stops else "terminate",
        "IamInstanceProfile": {by: place.instance_profile},
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [
            {
                "DeviceName": order.root_device,
                "Ebs": {
                    "VolumeType": "gp3",
                    "VolumeSize": order.names.recipe.volume_gb,
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    if subnet:
        arguments["SubnetId"] = subnet
    if groups:
        arguments["SecurityGroupIds"] = list(groups)
    return arguments


def _seen(found: InstanceTypeDef) -> Machine:
    tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
    return Machine(
        id=found["InstanceId"],
        state=found["State"]["Name"],
        build=tags.get(BUILD_TAG, ""),
        launched=found.get("LaunchTime"),
        reason=found.get("StateReason", {}).get("Message", "") or found.get("StateTransitionReason", ""),
    )
