"""Spot instances by price and capacity: CreateFleet of type `instant`, over all spot places of a group at once.

EC2 picks then, in the order `price-capacity-optimized`: of the deepest pools the cheapest. It takes the instances' shape from a
launch template only, which is made for one group of launches, carries the pool's tag, and goes when the group is done.
The fleet of an instant request is a record of it, and holds nothing: there is nothing to delete.
"""

from __future__ import annotations

import base64
import datetime
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from fleet.aws.capacity import IN_DOUBT, Candidate, Refusal
from fleet.aws.failures import AwsRefused, calling, one_line
from fleet.aws.instances import Answer, Instance, Instances, LaunchOrder, shape, tag_list, tag_specifications
from fleet.aws.search import Ask

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CreateFleetErrorTypeDef, CreateFleetResultTypeDef

    from fleet.aws.session import Aws

TEMPLATE_PREFIX = "inspect-fleet-"
STRATEGY = "price-capacity-optimized"
NO_TEMPLATE = frozenset({"InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"})
TAKEN = frozenset({"InvalidLaunchTemplateName.AlreadyExistsException"})
"""Our own: the answer to the first call was lost."""


class Fleets:
    """The spot fleets of one group of launches in one region. Blocking: call it from a thread. Raises AwsRefused."""

    def __init__(
        self, aws: Aws, *, now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    ) -> None:
        self.aws = aws
        self.region = aws.region
        self._now = now
        # Guards the name: a cancelled task leaves its thread behind, which may make the template while it is asked for.
        self._lock = threading.Lock()
        self._template: str | None = None
        """Its name, once it is there."""
        self._to_delete: dict[str, str] | None = None
        """How it is deleted, once it may be there: by its id, which policies are about, or else by its name."""

    def ask(self, order: LaunchOrder, ask: Ask) -> Answer:
        """Ask once for up to so many spot instances in these places; no retries of botocore's."""
        template = self._made(order)
        with calling("ec2", f"a spot fleet of {ask.count} in {self.region}"):
            answer = self.aws.ec2_once.create_fleet(**fleet_arguments(order, ask, template))
        return read(answer, ask, self.region, self._now())

    def close(self) -> None:
        """Delete the template, if one was made. AwsRefused: it is left."""
        with self._lock:
            if self._to_delete is None:
                return
            which = self._to_delete
            try:
                with calling("ec2", f"{', '.join(which.values())} in {self.region}"):
                    self.aws.ec2.delete_launch_template(**cast("Any", which))
            except AwsRefused as refused:
                if refused.code not in NO_TEMPLATE:
                    raise
            self._template = self._to_delete = None

    def _made(self, order: LaunchOrder) -> str:
        """The name of the group's template, which is made at the first call."""
        with self._lock:
            name = f"{TEMPLATE_PREFIX}{order.attempt}"
            if self._template is None:
                before, self._to_delete = self._to_delete, {"LaunchTemplateName": name}
                try:
                    with calling("ec2", f"{name} in {self.region}"):
                        made = self.aws.ec2_once.create_launch_template(**template_arguments(order, name))
                    self._to_delete = {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"]}
                except AwsRefused as refused:
                    if refused.code not in IN_DOUBT | TAKEN:
                        self._to_delete = before
                    if refused.code not in TAKEN:
                        raise
                self._template = name
            return name


class Launches(Instances):
    """How one group of launches is asked for: places one by one by RunInstances, several together by CreateFleet."""

    def __init__(self, aws: Aws) -> None:
        super().__init__(aws)
        self._fleets = Fleets(aws)

    def ask(self, order: LaunchOrder, ask: Ask) -> Answer:
        """Ask once. AwsRefused."""
        return self._fleets.ask(order, ask) if ask.together else super().ask(order, ask)

    def close(self) -> None:
        """Remove what the asking made beside instances. AwsRefused: it is left."""
        self._fleets.close()


def template_arguments(order: LaunchOrder, name: str) -> dict[str, Any]:
    """The arguments of CreateLaunchTemplate: everything but type and place."""
    data = {**shape(order), "TagSpecifications": tag_specifications(order)}
    # RunInstances has its user data encoded by boto3, a template has not.
    data["UserData"] = base64.b64encode(order.user_data.encode()).decode()
    return {
        "LaunchTemplateName": name,
        "LaunchTemplateData": data,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tag_list(order.tags)}],
    }


def fleet_arguments(order: LaunchOrder, ask: Ask, template: str) -> dict[str, Any]:
    """The arguments of CreateFleet."""
    return {
        "Type": "instant",
        "ClientToken": ask.token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "1"},
                "Overrides": [
                    {"InstanceType": place.instance_type, **({"SubnetId": place.subnet} if place.subnet else {})}
                    for place in ask.places
                ],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": ask.count, "DefaultTargetCapacityType": "spot"},
        "SpotOptions": {"AllocationStrategy": STRATEGY, "InstanceInterruptionBehavior": "terminate"},
        "TagSpecifications": [{"ResourceType": "fleet", "Tags": tag_list(order.tags)}],
    }


def read(answer: CreateFleetResultTypeDef, ask: Ask, region: str, now: datetime.datetime) -> Answer:
    """What CreateFleet gave. It doesn't say when it launched: `now`, until the instance is described."""
    instances = tuple(
        Instance(
            id=instance,
            region=region,
            state="pending",
            instance_type=found.get("InstanceType", ""),
            market="spot" if found.get("Lifecycle", "spot") == "spot" else "on-demand",
            launched_at=now,
            tags={},
        )
        for found in answer.get("Instances", [])
        for instance in found.get("InstanceIds", [])
    )
    errors = answer.get("Errors", [])
    return Answer(instances, tuple(refusal for error in errors for refusal in _refusals(error, ask.places)))


def _refusals(error: CreateFleetErrorTypeDef, places: Sequence[Candidate]) -> list[Refusal]:
    """What one error says of which places. EC2 may leave out of it what it was told."""
    told = cast("dict[str, Any]", error.get("LaunchTemplateAndOverrides", {})).get("Overrides", {})
    code, why = error.get("ErrorCode", ""), one_line(error.get("ErrorMessage", ""))
    about = {name: told[name] for name in ("InstanceType", "SubnetId") if name in told}
    meant = [
        place
        for place in places
        if about and about.items() <= {"InstanceType": place.instance_type, "SubnetId": place.subnet}.items()
    ]
    return [Refusal(place, code, why) for place in meant] or [Refusal(places[0], code, why, named=False)]
