"""A template as it comes out for one account: references and conditions resolved, as far as this product's template uses them.

So that what is there can be compared with what the template says, without asking CloudFormation. What isn't known here is left as
it stands: a resource's id that only AWS knows, for one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fleet.account import names
from fleet.account.template import meaning, parameter_defaults, template_text

ABSENT = object()
"""`AWS::NoValue`: the property isn't there."""
SUFFIXES = {"aws": "amazonaws.com", "aws-cn": "amazonaws.com.cn", "aws-us-gov": "amazonaws.com"}
NAMED_BY = ("BucketName", "RoleName", "InstanceProfileName", "ManagedPolicyName", "TopicName")
"""Properties by which a template names a resource; a reference to it means that name."""


@dataclass(frozen=True)
class Rendering:
    """The template of this version in one account and region, with these parameters; those not given have their defaults."""

    account: str
    region: str
    partition: str = "aws"
    stack: str = names.STACK
    parameters: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def template(self) -> dict[str, Any]:
        """The template's meaning."""
        return meaning(template_text())

    @cached_property
    def resources(self) -> dict[str, dict[str, Any]]:
        """Type and properties of each resource that comes out."""
        return {
            name: {"Type": one["Type"], "Properties": self.resolve(one.get("Properties", {}))}
            for name, one in self.template["Resources"].items()
            if self.holds(one.get("Condition"))
        }

    def holds(self, condition: str | None) -> bool:
        """Whether what stands under a condition comes out."""
        return condition is None or bool(self.resolve(self.template["Conditions"][condition]))

    def resolve(self, value: Any) -> Any:
        """A value of the template without functions."""
        if isinstance(value, list):
            return [found for one in value if (found := self.resolve(one)) is not ABSENT]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, given),) = value.items()
            if name.startswith("!"):
                return self._function(name[1:], given)
        return {key: found for key, one in value.items() if (found := self.resolve(one)) is not ABSENT}

    def _function(self, name: str, given: Any) -> Any:
        match name:
            case "Ref":
                return self._reference(given)
            case "Sub":
                text = given if isinstance(given, str) else given[0]
                own = {} if isinstance(given, str) else {key: self.resolve(one) for key, one in given[1].items()}
                return re.sub(r"\$\{([^}]+)\}", lambda found: self._substitute(found[1], own), text)
            case "GetAtt":
                resource, attribute = given.split(".", 1) if isinstance(given, str) else given
                return self._attribute(resource, attribute)
            case "If":
                return self.resolve(given[1] if self.holds(given[0]) else given[2])
            case "Condition":
                return self.holds(given)
            case "Equals":
                one, other = (str(self.resolve(each)) for each in given)
                return one == other
            case "Not":
                return not self.resolve(given[0])
            case "And":
                return all(self.resolve(one) for one in given)
            case "Or":
                return any(self.resolve(one) for one in given)
            case "Join":
                return given[0].join(map(str, self.resolve(given[1])))
        return {f"!{name}": given}

    def _substitute(self, name: str, own: Mapping[str, Any]) -> str:
        if name.startswith("!"):
            return f"${{{name[1:]}}}"  # written for IAM, not for CloudFormation
        if name in own:
            return str(own[name])
        if "." in name:
            return str(self._attribute(*name.split(".", 1)))
        # What neither is a parameter nor a resource is IAM's own variable, as in plain text.
        return str(self._reference(name))

    def _reference(self, name: str) -> Any:
        pseudo = {
            "AWS::AccountId": self.account,
            "AWS::NoValue": ABSENT,
            "AWS::Partition": self.partition,
            "AWS::Region": self.region,
            "AWS::StackName": self.stack,
            "AWS::URLSuffix": SUFFIXES.get(self.partition, "amazonaws.com"),
        }
        if name in pseudo:
            return pseudo[name]
        if name in parameter_defaults():
            return self.parameters.get(name, parameter_defaults()[name])
        properties = self.template["Resources"].get(name, {}).get("Properties", {})
        named = next((properties[key] for key in NAMED_BY if key in properties), None)
        return f"${{{name}}}" if named is None else self.resolve(named)

    def _attribute(self, resource: str, attribute: str) -> str:
        kind = self.template["Resources"].get(resource, {}).get("Type")
        if kind == "AWS::IAM::Role" and attribute == "Arn":
            return f"arn:{self.partition}:iam::{self.account}:role/{self._reference(resource)}"
        if kind == "AWS::S3::Bucket" and attribute == "Arn":
            return f"arn:{self.partition}:s3:::{self._reference(resource)}"
        return f"${{{resource}.{attribute}}}"
