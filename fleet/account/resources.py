"""Each resource of the account, looked at by itself: CloudFormation doesn't notice what somebody deletes or changes beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fleet.account import names
from fleet.account.commands import setup_command
from fleet.account.findings import Finding
from fleet.account.rendering import Rendering
from fleet.aws.failures import AwsRefused, Denied, calling
from fleet.aws.session import Aws

ABSENT = frozenset(
    {
        "404",
        "InvalidGroup.NotFound",
        "NoSuchBucket",
        "NoSuchBucketPolicy",
        "NoSuchEntity",
        "NoSuchLifecycleConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
        "NotFoundException",
        "ParameterNotFound",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
)
"""Codes of "there is no such thing", one or two a service."""

Look = Callable[[], str]
"""Looks at one thing; returns how it differs, empty: not at all. Raises what AWS refuses."""


def look(aws: Aws, rendering: Rendering, vpc: str = "") -> list[Finding]:
    """One finding for each resource. Never raises for what AWS refuses about one of them; Unreachable and bad credentials go on."""
    setup = setup_command(rendering.region, rendering.stack)
    return [_finding(what, why, test, setup) for what, why, test in _looks(aws, rendering, vpc)]


def _finding(what: str, why: str, test: Look, setup: str) -> Finding:
    try:
        detail = test()
    except Denied as denied:
        return Finding(what, "unknown", f"this identity may not look ({denied.operation})")
    except AwsRefused as refusal:
        if refusal.code not in ABSENT:
            raise
        return Finding(what, "missing", "it isn't there", why, f"`{setup}` makes it again")
    return Finding(what, "different", detail, why, f"`{setup}` sets it back") if detail else Finding(what, "ok")


def _looks(aws: Aws, rendering: Rendering, vpc: str) -> Iterator[tuple[str, str, Look]]:
    resources = rendering.resources
    bucket = resources["Bucket"]["Properties"]["BucketName"]
    yield f"bucket {bucket}", "results, code and logs have no place", lambda: _bucket(aws, bucket)
    yield (
        f"encryption of bucket {bucket}",
        "objects lie unencrypted",
        lambda: _encryption(aws, bucket),
    )
    yield (
        f"public access block of bucket {bucket}",
        "one wrong policy could open the bucket to the world",
        lambda: _public_access(aws, bucket),
    )
    policy = resources["BucketPolicy"]["Properties"]["PolicyDocument"]
    yield (
        f"policy of bucket {bucket}",
        "unencrypted connections are let in",
        lambda: _bucket_policy(aws, bucket, policy),
    )
    rules = [one["Id"] for one in resources["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]]
    yield (
        f"lifecycle of bucket {bucket}",
        "logs, archives and broken uploads are kept, and paid, for ever",
        lambda: _lifecycle(aws, bucket, rules),
    )
    for name, one in resources.items():
        properties = one["Properties"]
        if one["Type"] == "AWS::IAM::Role":
            yield from _role(aws, properties)
        elif one["Type"] == "AWS::IAM::InstanceProfile":
            yield _profile(aws, properties, resources)
        elif one["Type"] == "AWS::IAM::ManagedPolicy":
            yield _managed(aws, rendering, name, properties)
    group = resources["WorkerSecurityGroup"]["Properties"]["GroupName"]
    yield (
        f"security group {group}",
        "instances would be launched into a group that isn't known to let nothing in",
        lambda: _group(aws, group, vpc),
    )


def _bucket(aws: Aws, bucket: str) -> str:
    with calling("s3", bucket):
        aws.s3.head_bucket(Bucket=bucket)
    return ""


def _encryption(aws: Aws, bucket: str) -> str:
    with calling("s3", bucket):
        rules = aws.s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    return "" if rules else "no rule encrypts"


def _public_access(aws: Aws, bucket: str) -> str:
    with calling("s3", bucket):
        found: Mapping[str, Any] = aws.s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    open_ = sorted(name for name, blocks in found.items() if not blocks)
    return f"{', '.join(open_)} is off" if open_ else ""


def _bucket_policy(aws: Aws, bucket: str, wanted: Any) -> str:
    with calling("s3", bucket):
        found = json.loads(aws.s3.get_bucket_policy(Bucket=bucket)["Policy"])
    return differing(found, wanted)


def _lifecycle(aws: Aws, bucket: str, wanted: Sequence[str]) -> str:
    with calling("s3", bucket):
        rules = aws.s3.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules", [])
    on = {rule.get("ID") for rule in rules if rule["Status"] == "Enabled"}
    gone = [name for name in wanted if name not in on]
    return f"no rule {', '.join(gone)}" if gone else ""


def _role(aws: Aws, properties: Mapping[str, Any]) -> Iterator[tuple[str, str, Look]]:
    role = properties["RoleName"]

    def there() -> str:
        with calling("iam", role):
            aws.iam.get_role(RoleName=role)
        return ""

    yield f"role {role}", "instances have no permissions: none reads its secrets or its jobs", there
    for policy in properties.get("Policies", []):
        name, wanted = policy["PolicyName"], policy["PolicyDocument"]

        def same(name: str = name, wanted: Any = wanted) -> str:
            with calling("iam", role):
                found: Any = aws.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            return differing(found, wanted)

        yield f"policy {name} of role {role}", "instances may do more, or less, than they should", same


def _profile(aws: Aws, properties: Mapping[str, Any], resources: Mapping[str, Any]) -> tuple[str, str, Look]:
    profile, roles = properties["InstanceProfileName"], [str(one) for one in properties["Roles"]]

    def test() -> str:
        with calling("iam", profile):
            found = aws.iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
        return "" if [one["RoleName"] for one in found] == roles else f"it doesn't give the role {', '.join(roles)}"

    return f"instance profile {profile}", "nothing can be launched with it", test


def _managed(aws: Aws, rendering: Rendering, name: str, properties: Mapping[str, Any]) -> tuple[str, str, Look]:
    policy = properties["ManagedPolicyName"]
    arn = f"arn:{rendering.partition}:iam::{rendering.account}:policy/{policy}"

    def test() -> str:
        with calling("iam", policy):
            version = aws.iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
            found: Any = aws.iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        return differing(found, properties["PolicyDocument"])

    who = {
        names.CONTROLLER_POLICY: "whoever runs evals",
        names.LAUNCHER_POLICY: "pool workers",
        names.IMAGE_POLICY: "who builds worker images",
    }.get(policy, "others")
    return f"policy {policy}", f"{who} may do more, or less, than they should", test


def _group(aws: Aws, group: str, vpc: str) -> str:
    with calling("ec2", group):
        filters: list[Any] = [{"Name": "group-name", "Values": [group]}]
        if vpc:
            filters.append({"Name": "vpc-id", "Values": [vpc]})
        found = aws.ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    if not found:
        raise AwsRefused(
            service="ec2", operation="DescribeSecurityGroups", code="InvalidGroup.NotFound", target=group, why=""
        )
    return "it lets traffic in" if any(one.get("IpPermissions") for one in found) else ""


def differing(found: Any, wanted: Any) -> str:
    """Which statements of a policy aren't as they should be, by their Sids; empty: none."""
    ours, theirs = (
        {one.get("Sid", ""): one for one in _listed(document.get("Statement", []))} for document in (wanted, found)
    )
    lacks = [name for name in ours if name not in theirs]
    more = [name or "without a name" for name in theirs if name not in ours]
    other = [name for name in ours if name in theirs and _plain(ours[name]) != _plain(theirs[name])]
    said = (("lacks", lacks), ("has also", more), ("has otherwise", other))
    return ", ".join(f"it {verb} {' and '.join(some)}" for verb, some in said if some)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _plain(value: Any) -> Any:
    """A list of one is the same as the one, and order doesn't count."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted(value, key=str) if len(value) > 1 else _plain(value[0]) if value else []
    return value
