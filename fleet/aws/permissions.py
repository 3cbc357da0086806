"""What each part of the product may have to do in AWS, why, and what a probe's answer says of it. Decides only.

Three roles, as the account's template has them: a *controller* runs `run_eval` and launches nothing; a *launcher* is the pool
worker, and the only one that launches; an *operator* sets the account up. `fleet.aws.preflight` asks AWS.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.aws.advice import OVER_QUOTA
from fleet.aws.capacity import IN_DOUBT, NOT_OFFERED, OUT_OF_CAPACITY
from fleet.aws.failures import BAD_CREDENTIALS, DENIED, NO_CREDENTIALS, NOT_VALIDATED, THROTTLED
from fleet.errors import FleetError

Role = Literal["controller", "launcher", "operator"]

DOES: Mapping[Role, str] = {
    "controller": "run evals",
    "launcher": "launch instances",
    "operator": "set the account up",
}


@dataclass(frozen=True, slots=True)
class Permission:
    """One action of IAM, and what it is for."""

    action: str
    """As IAM writes it: `ec2:RunInstances`."""
    why: str
    """What it is needed for, to be read after "needed to"."""
    without: str = ""
    """How the product gets along without it; empty: it doesn't."""


def _all(needed: Mapping[str, str], spared: Mapping[str, tuple[str, str]] | None = None) -> tuple[Permission, ...]:
    return (
        *(Permission(action, why) for action, why in needed.items()),
        *(Permission(action, why, without) for action, (why, without) in (spared or {}).items()),
    )


PERMISSIONS: Mapping[Role, tuple[Permission, ...]] = {
    "controller": _all(
        {
            "ssm:GetParameter": "read which AMI is the worker image",
            "ec2:DescribeImages": "check the worker image before anything is created",
            "ec2:DescribeInstanceTypes": "check that the image fits the instance types",
            "s3:ListBucket": "find the results that are there already",
            "s3:GetObject": "read results",
            "s3:PutObject": "store plans, source archives and merged logs",
            "s3:DeleteObject": "give up the lock of an eval when its run ends",
            "sqs:CreateQueue": "make a run's queues",
            "sqs:TagQueue": "mark a run's queues, so that they are found again",
            "sqs:GetQueueAttributes": "see how many jobs are left",
            "sqs:SendMessage": "hand out jobs",
            "sqs:ReceiveMessage": "hear of the workers' results",
            "sqs:DeleteMessage": "count a result once",
            "sqs:DeleteQueue": "remove a run's queues when it ends",
            "ssm:PutParameter": "hand each instance its secrets",
            "ssm:AddTagsToResource": "let only that instance read them",
            "ssm:DescribeParameters": "find the secrets that a run hasn't removed yet",
            "ssm:DeleteParameters": "remove an instance's secrets once it has them",
        },
        {
            "ec2:DescribeInstances": (
                "list and reap what runs have",
                "`fleet list` shows what Prefect knows, and nothing is reaped",
            ),
            "ec2:DescribeSpotPriceHistory": ("estimate the cost of spot instances", "their price is marked unknown"),
            "pricing:GetProducts": ("estimate the cost of instances", "their price is marked unknown"),
        },
    ),
    "launcher": _all(
        {
            "ssm:GetParameter": "read which AMI is the worker image",
            "ec2:DescribeImages": "check the worker image before each launch",
            "ec2:DescribeInstanceTypes": "check that the image fits the instance types",
            "ec2:DescribeInstances": "watch instances, and find them again after a restart",
            "ec2:RunInstances": "launch instances",
            "ec2:CreateTags": "tag instances and volumes, so that they are found again and know their flow run",
            "iam:PassRole": "give instances the worker role",
            "ec2:TerminateInstances": "end instances, above all those of a cancelled run",
        },
        {
            "ec2:DescribeSubnets": (
                "find the subnets and zones to launch in",
                "subnets and security groups must be named, and aren't checked",
            ),
            "ec2:DescribeSecurityGroups": (
                "see that no port of an instance is open",
                "security groups must be named, and aren't checked",
            ),
            "ec2:DescribeInstanceTypeOfferings": (
                "skip zones that don't have a type",
                "every zone is asked for it",
            ),
            "ec2:DescribeVpcs": ("say why there is no default subnet", "the message doesn't say which it is"),
            "ec2:CreateSecurityGroup": (
                "make the security group that lets nothing in",
                "one must be named, or be there already",
            ),
            "ec2:CreateFleet": ("choose spot capacity by price and depth", "candidates are asked one by one"),
            "ec2:CreateLaunchTemplate": ("choose spot capacity by price and depth", "candidates are asked one by one"),
            "ec2:DeleteLaunchTemplate": (
                "remove the launch templates of spot instances",
                "they stay in the account, free of charge",
            ),
            "ec2:DescribeLaunchTemplates": (
                "find launch templates that a killed pool worker left",
                "they stay in the account, free of charge",
            ),
            "ec2:DescribeVolumes": (
                "find volumes that instances left",
                "they stay in the account, should there be some",
            ),
            "ec2:DeleteVolume": (
                "remove volumes that instances left",
                "they stay in the account, should there be some",
            ),
            "iam:CreateServiceLinkedRole": (
                "launch the first spot instance of an account",
                "an administrator makes that role once",
            ),
        },
    ),
    "operator": _all(
        {
            "cloudformation:CreateStack": "create the account's resources",
            "cloudformation:UpdateStack": "bring the account's resources up to date",
            "cloudformation:CreateChangeSet": "show what would change before it changes",
            "cloudformation:ExecuteChangeSet": "change what was shown",
            "cloudformation:DeleteChangeSet": "drop a change that nobody wants",
            "cloudformation:DescribeChangeSet": "show what would change before it changes",
            "cloudformation:DescribeStacks": "see what is there",
            "cloudformation:DescribeStackEvents": "say why a change failed",
            "cloudformation:GetTemplate": "compare what is there with this version's template",
            "iam:CreateRole": "make the worker role",
            "iam:PutRolePolicy": "write the worker role's policy",
            "iam:CreatePolicy": "make the controller's and the launcher's policies",
            "iam:CreatePolicyVersion": "bring those policies up to date",
            "iam:CreateInstanceProfile": "let instances have the worker role",
            "iam:AddRoleToInstanceProfile": "let instances have the worker role",
            "iam:PassRole": "let instances have the worker role",
            "iam:GetRole": "compare the worker role with the template",
            "s3:CreateBucket": "make the bucket",
            "s3:PutEncryptionConfiguration": "encrypt the bucket",
            "s3:PutLifecycleConfiguration": "let logs of instances expire",
            "s3:PutBucketPublicAccessBlock": "keep the bucket private",
            "s3:PutBucketOwnershipControls": "keep the bucket's objects the account's own",
            "s3:PutBucketPolicy": "refuse unencrypted connections to the bucket",
            "ec2:CreateSecurityGroup": "make the security group that lets nothing in",
            "ec2:DescribeSecurityGroups": "see whether that group is there",
        },
    ),
}


class Outcome(enum.Enum):
    """What one probe found."""

    ALLOWED = "allowed"
    MISSING = "missing"
    UNKNOWN = "could not be checked"
    REFUSED = "allowed, but the call is refused"
    """The identity may; what was asked for is wrong: a profile that doesn't exist, say."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe found on one permission."""

    permission: Permission
    outcome: Outcome
    detail: str = ""
    """AWS's code and words, or why it couldn't be checked; empty where it is allowed."""

    @property
    def blocks(self) -> bool:
        """Whether nothing will work as it stands."""
        return self.outcome is Outcome.MISSING and not self.permission.without

    def line(self) -> str:
        """It in one line."""
        without = f" (without it, {self.permission.without})" if self.permission.without else ""
        detail = f": {self.detail}" if self.detail and self.outcome is not Outcome.MISSING else ""
        return f"{self.permission.action}: needed to {self.permission.why}{without}{detail}"


class PermissionsMissing(FleetError):
    """The identity lacks permissions; found before anything was created. An administrator gives them."""

    role: Role
    who: str
    """ARN of the identity; empty: it couldn't be asked for."""
    region: str
    missing: tuple[Finding, ...]

    def message(self) -> str:
        """Who lacks what, a line for each permission, and where the policies are."""
        who = self.who or "this AWS identity"
        count = f"{len(self.missing)} permissions" if len(self.missing) > 1 else "a permission"
        lines = "\n".join(f"  {finding.line()}" for finding in self.missing)
        policy = "" if self.role == "operator" else f"\nThe policy inspect-fleet-{self.role} has them all: docs/iam.md"
        return f"{who} lacks {count} to {DOES[self.role]} in {self.region}; nothing was created:\n{lines}{policy}"


ALLOWED_BY = frozenset({"DryRunOperation"})
"""EC2 would have done it."""
NOT_JUDGED = THROTTLED | IN_DOUBT | BAD_CREDENTIALS | NO_CREDENTIALS
"""Answers that say nothing of a permission."""
NO_ROOM = OUT_OF_CAPACITY | OVER_QUOTA | NOT_OFFERED
"""What may be otherwise in a minute or in another zone: no matter of permissions."""


def outcome_of(code: str, *, expected: Iterable[str] = ()) -> Outcome:
    """What an error code says of the permission to call.

    `expected`: the codes that a probe provokes, such as an absent queue's: AWS answers them to those who may ask.
    """
    if code in ALLOWED_BY or code in NO_ROOM or code in frozenset(expected):
        return Outcome.ALLOWED
    if code in NOT_VALIDATED:
        return Outcome.REFUSED
    if code in DENIED:
        return Outcome.MISSING
    if code in NOT_JUDGED:
        return Outcome.UNKNOWN
    return Outcome.REFUSED


def permission(role: Role, action: str) -> Permission:
    """The permission of a role by its action. KeyError: the role doesn't need it."""
    return {one.action: one for one in PERMISSIONS[role]}[action]


def in_order(role: Role, found: Mapping[str, Finding]) -> tuple[Finding, ...]:
    """A finding for each permission of the role; those that nobody probed couldn't be checked."""
    return tuple(
        found.get(one.action, Finding(one, Outcome.UNKNOWN, "there is no harmless way to ask"))
        for one in PERMISSIONS[role]
    )


def missing(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are needed and not there."""
    return [finding for finding in findings if finding.blocks]
