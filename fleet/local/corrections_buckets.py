"""Buckets as CloudFormation makes them, and bucket policies with the conditions in them.

moto knows no AWS::S3::BucketPolicy, takes of a bucket's properties only encryption and tags, and reads a bucket's policy without
its conditions.
"""

from __future__ import annotations

import json
from typing import Any

from moto.core.common_models import CloudFormationModel
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket, s3_backends

from fleet.local.corrections import replace
from fleet.local.policy import Request, decide


def correct_buckets() -> None:
    """Put the corrections in place, once."""
    _correct_bucket_policies()

    def create(name: str, cloudformation_json: Any, account: str, region: str, **others: Any) -> FakeBucket:
        """With its lifecycle and its public access block."""
        bucket = made(name, cloudformation_json, account, region, **others)
        _furnish(bucket, cloudformation_json["Properties"])
        return bucket

    def update(**named: Any) -> FakeBucket:
        """Likewise."""
        bucket = updated(**named)
        _furnish(bucket, named["cloudformation_json"]["Properties"])
        return bucket

    made, updated = FakeBucket.create_from_cloudformation_json, FakeBucket.update_from_cloudformation_json
    replace(FakeBucket, create_from_cloudformation_json=create, update_from_cloudformation_json=update)


def _furnish(bucket: FakeBucket, properties: Any) -> None:
    block = properties.get("PublicAccessBlockConfiguration")
    if block:
        s3_backends[bucket.account_id]["aws"].put_public_access_block(bucket.name, block)
    rules = properties.get("LifecycleConfiguration", {}).get("Rules", [])
    if rules:
        bucket.set_lifecycle([_as_asked(rule) for rule in rules])


def _as_asked(rule: Any) -> dict[str, Any]:
    """A rule of a template in the words of S3's own API."""
    asked = {"ID": rule["Id"], "Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "ExpirationInDays" in rule:
        asked["Expiration"] = {"Days": rule["ExpirationInDays"]}
    if "AbortIncompleteMultipartUpload" in rule:
        asked["AbortIncompleteMultipartUpload"] = rule["AbortIncompleteMultipartUpload"]
    return asked


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
