"""CloudFormation: loaded without the twenty services that no account's template names, and change sets that tell the truth.

moto imports the models of every service that it can deploy, at each start. It knows no bucket policies (AWS::S3::BucketPolicy),
gives a role none of its managed policies, forgets what a change set changed, and overlooks changes of parameters. Its S3 reads a
bucket's policy without the conditions in it.
"""

# ruff: noqa: SLF001  (moto's internals are what is corrected here)

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import yaml
from moto.core.common_models import CloudFormationModel
from moto.iam.access_control import PermissionResult
from moto.iam.models import Role, iam_backends
from moto.s3.models import FakeBucket, s3_backends

from fleet.local.corrections import replace
from fleet.local.policy import Request, decide

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


class BucketPolicy(CloudFormationModel):
    """AWS::S3::BucketPolicy, which moto lacks."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket

    @property
    def physical_resource_id(self) -> str:
        """As AWS has it: the bucket's name."""
        return self.bucket

    @staticmethod
    def cloudformation_name_type() -> str:
        """Its property with a name: none."""
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        """The type."""
        return "AWS::S3::BucketPolicy"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> BucketPolicy:
        """Put it."""
        properties = cloudformation_json["Properties"]
        document = json.dumps(properties["PolicyDocument"]).encode()
        s3_backends[account_id]["aws"].put_bucket_policy(properties["Bucket"], document)
        return cls(properties["Bucket"])

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> BucketPolicy:
        """Put another in its place."""
        return cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        """Remove it."""
        s3_backends[account_id]["aws"].delete_bucket_policy(resource_name)


def correct_cloudformation() -> None:
    """Load it and put the corrections in place, once."""
    _correct_roles()
    _correct_bucket_policies()
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

    def diff(self: Any) -> list[Any]:
        """A resource changes too when a parameter that it refers to does."""
        found = self.stack.resource_map.build_resource_diff(self.template_dict, self.parameters)
        kinds = {**self.stack.template_dict.get("Resources", {}), **self.template_dict["Resources"]}
        return [
            models.Change(action=action, logical_resource_id=name, resource_type=kinds[name]["Type"])
            for action, names in found.items()
            for name in names
        ]

    def apply(self: Any) -> None:
        """Afterwards the stack has the new template, parameters and outputs, which the next change set is compared with."""
        carry_out(self)
        stack = self.stack
        stack.template, stack.parameters = self.template, self.parameters
        stack._parse_template()
        stack.output_map = stack._create_output_map()

    replace(models.Stack, parse_template=staticmethod(parse_template))
    replace(models.ChangeSet, _parse_template=parse_own, diff=diff)
    carry_out = replace(models.ChangeSet, apply=apply)["apply"]


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


def _correct_bucket_policies() -> None:
    results = {
        "allowed": PermissionResult.PERMITTED,
        "denied": PermissionResult.DENIED,
        "not allowed": PermissionResult.NEUTRAL,
    }

    def get_permission(self: FakeBucket, action: str, resource: str) -> PermissionResult:
        """With conditions. The emulator's plain HTTP stands for HTTPS: it never leaves this machine."""
        if self.policy is None:
            return PermissionResult.NEUTRAL
        request = Request(action, resource, {"aws:securetransport": ("true",)})
        return results[decide([self.policy.decode()], request)]

    replace(FakeBucket, get_permission=get_permission)


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
