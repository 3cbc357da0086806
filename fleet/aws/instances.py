"""EC2 instances: launch, describe, terminate. The only file that calls RunInstances.

The invariant: when a launch ends, the instance it returned is the only one of that attempt that runs. Whatever ends it
otherwise (a refusal, a bug, cancellation), what it launched is terminated before the error goes on. Every instance carries
its tags from the first moment, so that what a killed process leaves can be found by them.
"""

from __future__ import annotations

import datetime
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread

from fleet.aws.capacity import (
    IN_DOUBT,
    Candidate,
    LaunchRefused,
    LaunchTooSlow,
    Market,
    Next,
    NoCapacity,
    Refusal,
    after_refusal,
    client_token,
    wait_after,
)
from fleet.aws.failures import AwsRefused, calling

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from fleet.aws.session import Aws

LAUNCH_TAG = "inspect-fleet:launch"
"""Tag with the attempt that launched an instance: finds the ones whose answer was lost."""
LEAVING = frozenset({"shutting-down", "terminated"})
"""States from which an instance never comes back."""
UNKNOWN_INSTANCE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
CLEAN_UP_S = 60.0
"""Seconds that a launch which failed may take to remove what it launched; what is left then is found by its tags."""
TERMINATE_AT_ONCE = 1_000
"""Instance ids that one TerminateInstances takes."""

log = logging.getLogger(__name__)


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
    """Everything about an instance but where it is looked for."""

    attempt: str
    """What client tokens and the launch tag derive from: new for each attempt of a flow run."""
    image: str
    root_device: str
    """The image's own name of its root volume, such as /dev/xvda: a size goes to that volume only by this name."""
    user_data: str
    tags: Mapping[str, str]
    security_groups: tuple[str, ...] = ()
    """Ids (sg-…); names work in the default VPC only, EC2's rule."""
    instance_profile: str | None = None
    volume_gb: int = 100


def launch_arguments(order: LaunchOrder, candidate: Candidate) -> dict[str, Any]:
    """The arguments of RunInstances for one candidate."""
    tags = {**order.tags, LAUNCH_TAG: order.attempt}
    tag_list = [{"Key": key, "Value": value} for key, value in tags.items()]
    ids = [group for group in order.security_groups if group.startswith("sg-")]
    names = [group for group in order.security_groups if not group.startswith("sg-")]
    arguments: dict[str, Any] = {
        "ImageId": order.image,
        "InstanceType": candidate.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(order.attempt, candidate),
        "UserData": order.user_data,
        # The machine's own power-off is how it ends: it must not stay, stopped and billed for its volume.
        "InstanceInitiatedShutdownBehavior": "terminate",
        # One hop: the token's answer doesn't cross into a container, so a sample can't take the machine's role.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
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
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list} for kind in ("instance", "volume")],
    }
    if candidate.market == "spot":
        arguments["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    if candidate.subnet:
        arguments["SubnetId"] = candidate.subnet
    if ids:
        arguments["SecurityGroupIds"] = ids
    if names:
        arguments["SecurityGroups"] = names
    if order.instance_profile:
        by = "Arn" if order.instance_profile.startswith("arn:") else "Name"
        arguments["IamInstanceProfile"] = {by: order.instance_profile}
    return arguments


class Instances:
    """The instances of one region. Blocking: call it from a thread. Raises AwsRefused for what AWS refuses."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self.region = aws.region

    def run(self, order: LaunchOrder, candidate: Candidate) -> Instance:
        """Ask once for one instance; no retries of botocore's."""
        with calling("ec2", f"{candidate.instance_type} in {self.region}"):
            answer = self.aws.ec2_once.run_instances(**launch_arguments(order, candidate))
        return _seen(answer["Instances"][0], self.region)

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
        """Ask for the end of these; answers the ids that EC2 doesn't know. Ended ones are no error."""
        unknown: set[str] = set()
        for start in range(0, len(ids), TERMINATE_AT_ONCE):
            unknown |= self._terminate(ids[start : start + TERMINATE_AT_ONCE])
        return frozenset(unknown)

    def _terminate(self, ids: Sequence[str]) -> set[str]:
        try:
            with calling("ec2", f"{', '.join(ids)} in {self.region}"):
                self.aws.ec2.terminate_instances(InstanceIds=list(ids))
        except AwsRefused as refused:
            if refused.code not in UNKNOWN_INSTANCE:
                raise
            if len(ids) == 1:
                return set(ids)
            # One unknown id makes EC2 refuse the whole call: ask one by one, so that the others go.
            return {unknown for each in ids for unknown in self._terminate([each])}
        return set()

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


class Launcher(Protocol):
    """What a launch needs of EC2: `Instances`, or a fake."""

    region: str

    def run(self, order: LaunchOrder, candidate: Candidate) -> Instance:
        """Ask once for one instance; AwsRefused."""

    def find(self, tags: Mapping[str, str]) -> list[Instance]:
        """All instances with these tags; AwsRefused."""

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        """Ask for the end of these; AwsRefused."""


async def launch(
    ec2: Launcher,
    order: LaunchOrder,
    places: Iterable[Candidate],
    *,
    deadline_seconds: float = 300.0,
    gate: anyio.CapacityLimiter | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    draw: Callable[[], float] = random.random,
) -> Instance:
    """One instance from the first of `places` that has one.

    One call for each place; throttling and lost answers ask for the same place again, with jitter, until the deadline.
    `gate` is shared by launches that are under way at the same time and bounds how many ask EC2 at once.

    NoCapacity: every place was refused. LaunchRefused: for a reason no place would change. LaunchTooSlow: the deadline.
    """
    hunt = _Hunt(ec2, order)
    try:
        found = await _look(
            hunt, places, deadline_seconds=deadline_seconds, gate=gate, clock=clock, sleep=sleep, draw=draw
        )
        if hunt.in_doubt:
            await anyio.to_thread.run_sync(hunt.drop_all_but, found)
    except BaseException:  # cancellation too: nobody else knows these instances yet
        with anyio.move_on_after(CLEAN_UP_S, shield=True):
            await anyio.to_thread.run_sync(hunt.drop_all_but, None)
        raise
    return found


async def _look(
    hunt: _Hunt,
    places: Iterable[Candidate],
    *,
    deadline_seconds: float,
    gate: anyio.CapacityLimiter | None,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    draw: Callable[[], float],
) -> Instance:
    until = clock() + deadline_seconds
    refusals: list[Refusal] = []
    for place in places:
        tries = 0
        while True:
            try:
                return await anyio.to_thread.run_sync(hunt.ask, place, limiter=gate)
            except AwsRefused as refused:
                answer = Refusal(place, refused.code, refused.why)
            tries += 1
            match after_refusal(answer.code):
                case Next.STOP:
                    raise LaunchRefused(region=hunt.ec2.region, refusals=(*refusals, answer))
                case Next.SAME_LATER:
                    wait = wait_after(tries, draw())
                    if clock() + wait > until:
                        raise LaunchTooSlow(
                            region=hunt.ec2.region, refusals=(*refusals, answer), seconds=deadline_seconds
                        )
                    await sleep(wait)
                case Next.CANDIDATE:
                    refusals.append(answer)
                    break
    raise NoCapacity(region=hunt.ec2.region, refusals=tuple(refusals))


class _Hunt:
    """What one launch has asked for. Its methods run in threads, and outlive an await that was cancelled."""

    def __init__(self, ec2: Launcher, order: LaunchOrder) -> None:
        self.ec2 = ec2
        self.order = order
        self.in_doubt = False
        self._launched: list[str] = []
        self._ended = False
        # Held during a call of RunInstances: a cancelled task leaves its thread behind, and clean-up waits here for it.
        self._calling = threading.Lock()

    def ask(self, place: Candidate) -> Instance:
        """One call. The id is kept here, since a cancelled await loses what its thread returns."""
        with self._calling:
            if self._ended:
                raise RuntimeError("this launch has ended")
            try:
                instance = self.ec2.run(self.order, place)
            except AwsRefused as refused:
                self.in_doubt = self.in_doubt or refused.code in IN_DOUBT
                raise
            except BaseException:  # a fault of ours, after the answer for all we know
                self.in_doubt = True
                raise
            self._launched.append(instance.id)
            return instance

    def drop_all_but(self, kept: Instance | None) -> None:
        """Terminate every instance of this attempt but `kept`, also those whose answer was lost. Never raises AwsRefused."""
        with self._calling:
            self._ended = True
        ids = {*self._launched}
        try:
            if self.in_doubt:
                found = self.ec2.find({LAUNCH_TAG: self.order.attempt})
                ids |= {instance.id for instance in found if not instance.leaving}
        except AwsRefused as refused:
            log.warning("instances of the attempt %s can't be looked for: %s", self.order.attempt, refused)
        ids -= {kept.id} if kept else set()
        try:
            if ids:
                self.ec2.terminate(sorted(ids))
        except AwsRefused as refused:
            log.error("instances left running: %s: %s", ", ".join(sorted(ids)), refused)  # noqa: TRY400  said in one line
