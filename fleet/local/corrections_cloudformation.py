"""CloudFormation: loaded without the twenty services that no account's template names, and change sets that tell the truth.

moto imports the models of every service that it can deploy, at each start. It gives a role none of its managed policies, forgets
what a change set changed, and overlooks changes of parameters and what somebody deletes past it. Buckets: `corrections_buckets`.
"""

# ruff: noqa: SLF001  (moto's internals are what is corrected here)

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import yaml
from moto.ec2.models import ec2_backends
from moto.iam.models import Role, iam_backends
from moto.s3.models import s3_backends

from fleet.local.corrections import replace
from fleet.local.corrections_buckets import correct_buckets

UNUSED = (
    "apigateway",
    "autoscaling",
    "awslambda",
    "batch",
    "cloudwatch",
    "datapipeline",
    "dynamodb",
    "ecr",
    "ecs",
    "efs",
    "elb",
    "elbv2",
    "emr",
    "events",
    "iot",
    "kinesis",
    "kms",
    "rds",
    "redshift",
    "route53",
    "sagemaker",
    "stepfunctions",
)
"""Services of which moto's CloudFormation imports the models, only to know their resource types."""


reverting: ContextVar[bool] = ContextVar("reverting", default=False)
"""Whether the change set that is being made reverts drift."""


def correct_cloudformation() -> None:
    """Load it and put the corrections in place, once."""
    _correct_roles()
    correct_buckets()
    with _stand_ins():
        models: Any = importlib.import_module("moto.cloudformation.models")
    utils: Any = importlib.import_module("moto.cloudformation.utils")

    class Loader(yaml.CSafeLoader):
        """libyaml's parser: moto's takes 0.1 s for the account's template."""

    yaml.add_multi_constructor("", utils.yaml_tag_constructor, Loader=Loader)

    def parse_template(template: str) -> Any:
        """JSON is YAML too."""
        return yaml.load(template, Loader=Loader)  # noqa: S506, a safe loader with CloudFormation's own tags

    def parse_own(self: Any) -> None:
        self.template_dict = parse_template(self.template)

    def has_parameters(self: Any, other: Mapping[str, Any]) -> bool:
        """Defaults that are said aloud are no other parameters."""
        known = self.resource_map.resolved_parameters
        return all(str(known.get(name)) == str(value) for name, value in other.items())

    def has_template(self: Any, other: str) -> bool:
        """Who asks to revert drift has another template where something is gone."""
        same: bool = parse_template(self.template) == parse_template(other)
        return same and not (reverting.get() and gone(self))

    def diff(self: Any) -> list[Any]:
        """A resource changes too when a parameter that it refers to does; one that is gone is added, where drift is reverted."""
        resources = self.stack.resource_map
        resources.input_parameters = {name: str(value) for name, value in resources.resolved_parameters.items()}
        found = resources.build_resource_diff(self.template_dict, self.parameters)
        self.gone = gone(self.stack) if reverting.get() else []
        found["Add"] += self.gone
        kinds = {**self.stack.template_dict.get("Resources", {}), **self.template_dict["Resources"]}
        return [
            models.Change(action=action, logical_resource_id=name, resource_type=kinds[name]["Type"])
            for action, names in found.items()
            for name in names
        ]

    def apply(self: Any) -> None:
        """Afterwards the stack has the new template, parameters and outputs, which the next change set is compared with."""
        stack = self.stack
        for name in self.gone:
            resources = stack.resource_map
            resources._parsed_resources.pop(name, None)
            _ = resources[name]  # moto's way to make one
        carry_out(self)
        stack.template, stack.parameters = self.template, self.parameters
        stack._parse_template()
        stack.output_map = stack._create_output_map()

    def create_change_set(self: Any) -> Any:
        token = reverting.set(self._get_param("DeploymentMode") == "REVERT_DRIFT")
        try:
            return ask(self)
        finally:
            reverting.reset(token)

    responses: Any = importlib.import_module("moto.cloudformation.responses")
    ask = replace(responses.CloudFormationResponse, create_change_set=create_change_set)["create_change_set"]
    replace(
        models.Stack,
        parse_template=staticmethod(parse_template),
        has_parameters=has_parameters,
        has_template=has_template,
    )
    replace(models.ChangeSet, _parse_template=parse_own, diff=diff)
    carry_out = replace(models.ChangeSet, apply=apply)["apply"]


def gone(stack: Any) -> list[str]:
    """The resources of a stack that aren't there any more, by their logical ids."""
    iam, s3 = iam_backends[stack.account_id]["aws"], s3_backends[stack.account_id]["aws"]
    groups = ec2_backends[stack.account_id][stack.region_name].groups
    there: dict[str, Callable[[Any], bool]] = {
        "AWS::EC2::SecurityGroup": lambda one: any(one.id in known for known in groups.values()),
        "AWS::IAM::InstanceProfile": lambda one: any(one is known for known in iam.instance_profiles.values()),
        "AWS::IAM::ManagedPolicy": lambda one: one.arn in iam.managed_policies,
        "AWS::IAM::Role": lambda one: any(one is known for known in iam.roles.values()),
        "AWS::S3::Bucket": lambda one: one.name in s3.buckets,
        "AWS::S3::BucketPolicy": lambda one: one.bucket in s3.buckets and s3.buckets[one.bucket].policy is not None,
    }
    return [
        name
        for name in stack.template_dict.get("Resources", {})
        if (one := stack.resource_map._parsed_resources.get(name)) is not None
        and (test := there.get(stack.template_dict["Resources"][name]["Type"])) is not None
        and not test(one)
    ]


def _correct_roles() -> None:
    def put_policy(self: Role, policy_name: str, policy_json: Any) -> None:
        """A document is text, also where CloudFormation brings it as what it means."""
        self.policies[policy_name] = policy_json if isinstance(policy_json, str) else json.dumps(policy_json)

    def create(name: str, cloudformation_json: Any, account: str, region: str, **others: Any) -> Role:
        """With its ManagedPolicyArns; of AWS's own ones the emulator has none."""
        role = own(name, cloudformation_json, account, region, **others)
        backend = iam_backends[account]["aws"]
        for arn in cloudformation_json["Properties"].get("ManagedPolicyArns", []):
            if arn in backend.managed_policies:
                backend.attach_role_policy(arn, role.name)
        return role

    own = Role.create_from_cloudformation_json
    replace(Role, put_policy=put_policy, create_from_cloudformation_json=create)


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Empty modules in the place of `UNUSED`, for as long as moto is imported: whoever asks for one later gets the real one."""
    added = [f"moto.{service}" for service in UNUSED if f"moto.{service}" not in sys.modules]
    for name in added:
        stand_in: Any = ModuleType(name)
        stand_in.models = ModuleType(f"{name}.models")
        sys.modules[name] = stand_in
    if "moto.awslambda" in added:  # custom resources call functions: no template of ours has one
        lambdas: Any = ModuleType("moto.awslambda.utils")
        lambdas.get_backend = None
        sys.modules[lambdas.__name__] = lambdas
        added.append(lambdas.__name__)
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)
