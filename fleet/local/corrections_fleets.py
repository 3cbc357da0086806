"""EC2 fleets of type `instant` as AWS launches them: what RunInstances does, over overrides, with a template's fields in full.

moto ignores a launch template's profile, metadata options, shutdown behaviour, volumes and market, launches persistent spot
requests, and gives all instances whatever override comes first. Here each instance comes by the corrected RunInstances, so that a
local instance of a fleet is like any other. Also: how many instances a place has room for (`Rooms`), which tests set.
"""

# ruff: noqa: SLF001  (moto's internals are what is corrected here)

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.tags import TagResponse

from fleet.local.corrections import replace
from fleet.local.rooms import ROOMS

STRATEGIES = frozenset(
    {"lowest-price", "diversified", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized"}
)
NOT_OF_A_LAUNCH = frozenset({"LaunchTemplateSpecification", "Priority", "WeightedCapacity", "MaxPrice"})


@dataclass(frozen=True, slots=True)
class _Part:
    """What one override gave: instances, or why not."""

    override: dict[str, Any]
    instances: list[Any]
    error: EC2ClientError | None = None


def correct_fleets() -> None:
    """Put the corrections in place, once, behind those of EC2."""
    _correct_room()
    _correct_fleets()
    _correct_tags()


def _correct_room() -> None:
    def run_instances(self: Any) -> Any:
        """As many as there is room for: fewer than MaxCount where that is at least MinCount, else no capacity (AWS: status 500)."""
        token = str(self._get_param("ClientToken", ""))
        most = int(self._get_param("MaxCount", 1))
        market = self._get_param("InstanceMarketOptions.MarketType", "on-demand") or "on-demand"
        kind, subnet = self._get_param("InstanceType", "m1.small"), self._get_param("SubnetId", "") or ""
        if self._get_param("DryRun", False) or (token and token in seen):
            return original(self)
        room = ROOMS.left(kind, market, subnet)
        if room is None or room >= most:
            answer = original(self)
        elif room >= int(self._get_param("MinCount", 1)):
            self.params = {**self.params, "MaxCount": room}
            answer = original(self)
        else:
            raise _no_capacity(kind)
        ROOMS.take(kind, market, subnet, len(answer.result.instances))
        if token:
            seen.add(token)
        return answer

    seen: set[str] = set()
    original = replace(InstanceResponse, run_instances=run_instances)["run_instances"]


def _no_capacity(kind: str) -> EC2ClientError:
    return EC2ClientError(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested.",
    )


def _correct_fleets() -> None:
    fleets: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}

    def create_fleet(self: Any) -> ActionResult:
        """Launches now what it can, and answers with it and with an error for each override that gave too few.

        A client token that was used gives back the answer; with other parameters it is IdempotentParameterMismatch.
        """
        self.error_on_dryrun()
        if self._get_param("Type", "maintain") != "instant":
            return original(self)  # type: ignore[no-any-return]
        token = str(self._get_param("ClientToken", ""))
        said = json.dumps(self.params, sort_keys=True, default=str)
        if token and (self.region, token) in fleets:
            before, answer = fleets[self.region, token]
            if before != said:
                raise EC2ClientError("IdempotentParameterMismatch", "The client token was used with other parameters.")
            return ActionResult(answer)
        answer = _launched(self)
        if token:
            fleets[self.region, token] = (said, answer)
        return ActionResult(answer)

    original = replace(Fleets, create_fleet=create_fleet)["create_fleet"]


def _launched(response: Any) -> dict[str, Any]:
    target = response._get_param("TargetCapacitySpecification", {})
    market = target.get("DefaultTargetCapacityType", "on-demand")
    options = response._get_param("SpotOptions", {}) or {}
    if options.get("AllocationStrategy", "lowest-price") not in STRATEGIES:
        raise EC2ClientError("InvalidParameterValue", "AllocationStrategy isn't one of EC2's")
    wanted = int(target["TotalTargetCapacity"])
    fleet = f"fleet-{uuid4()}"
    parts: list[_Part] = []
    specification: dict[str, Any] = {}
    for config in response._get_param("LaunchTemplateConfigs", []):
        specification = config["LaunchTemplateSpecification"]
        data = _template_data(response, specification)
        for override in config.get("Overrides") or [{}]:
            missing = wanted - sum(len(part.instances) for part in parts)
            if missing > 0:
                parts.append(_asked(response, data, override, market, missing))
    for part in parts:
        for instance in part.instances:
            instance.add_tags({"aws:ec2:fleet-id": fleet})
    return {
        "FleetId": fleet,
        "Instances": [
            {
                "LaunchTemplateAndOverrides": {
                    "LaunchTemplateSpecification": specification,
                    "Overrides": part.override,
                },
                "Lifecycle": market,
                "InstanceIds": [instance.id for instance in part.instances],
                "InstanceType": part.instances[0].instance_type,
            }
            for part in parts
            if part.instances
        ],
        "Errors": [
            {
                "LaunchTemplateAndOverrides": {
                    "LaunchTemplateSpecification": specification,
                    "Overrides": part.override,
                },
                "Lifecycle": market,
                "ErrorCode": part.error.code,
                "ErrorMessage": part.error.message,
            }
            for part in parts
            if part.error is not None
        ],
    }


def _template_data(response: Any, specification: dict[str, Any]) -> dict[str, Any]:
    backend = response.ec2_backend
    if "LaunchTemplateId" in specification:
        template = backend.get_launch_template(specification["LaunchTemplateId"])
    else:
        template = backend.get_launch_template_by_name(specification["LaunchTemplateName"])
    return dict(template.get_version(specification.get("Version", "$Default")).data)


def _asked(response: Any, data: dict[str, Any], override: dict[str, Any], market: str, count: int) -> _Part:
    """One override by RunInstances."""
    asked: Any = copy.copy(response)
    asked.__class__ = InstanceResponse
    own = {key: value for key, value in override.items() if key not in NOT_OF_A_LAUNCH}
    # A template's tags for itself are no tags of what it launches.
    tags = [one for one in data.get("TagSpecifications", []) if one["ResourceType"] != "launch-template"]
    asked.params = {**data, "TagSpecifications": tags, **own, "MinCount": 1, "MaxCount": count}
    if data.get("UserData"):
        asked.params["UserData"] = str(data["UserData"])  # still encoded, as a request has it
    if market == "spot":
        asked.params["InstanceMarketOptions"] = {"MarketType": "spot"}
    run: Callable[[Any], Any] = InstanceResponse.run_instances
    try:
        instances = run(asked).result.instances
    except EC2ClientError as error:
        return _Part(override, [], error)
    short = _no_capacity(str(own.get("InstanceType", ""))) if len(instances) < count else None
    return _Part(override, instances, short)


def _correct_tags() -> None:
    def create_tags(self: Any) -> Any:
        """Tags of an instance that isn't there are refused (moto keeps them)."""
        for resource in self._get_param("Resources", []):
            if str(resource).startswith("i-") and not any(
                resource == instance.id for instance in self.ec2_backend.all_instances()
            ):
                raise InvalidInstanceIdError([resource])
        return original(self)

    original = replace(TagResponse, create_tags=create_tags)["create_tags"]
