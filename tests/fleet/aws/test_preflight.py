"""Which permissions are missing, asked of the local cloud: each is named with its reason, and asking makes nothing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import boto3
import pytest

from fleet.aws.capacity import Candidate
from fleet.aws.failures import CredentialsBad
from fleet.aws.identity import Caller
from fleet.aws.instances import LaunchOrder, launch_arguments
from fleet.aws.permissions import (
    PERMISSIONS,
    Finding,
    Outcome,
    Permission,
    PermissionsMissing,
    Role,
    missing,
    outcome_of,
)
from fleet.aws.preflight import Preflights, findings, missing_permissions, require, resource_of
from fleet.aws.probes import Scope
from fleet.aws.session import Aws
from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.fleet.aws.conftest import fail, reply
from tests.fleet.local.conftest import Host

SCOPE = Scope(bucket=preset.BUCKET, bucket_region=preset.REGION)
CONTROLLER = [one.action for one in PERMISSIONS["controller"] if not one.without]
ORDER = LaunchOrder(
    attempt="attempt",
    image=preset.IMAGE,
    root_device="/dev/sda1",
    user_data="#!/bin/bash\n",
    tags={"inspect-fleet:pool": "0d1e", "Name": "worker 1"},
    instance_profile=preset.PROFILE,
)


@pytest.fixture(scope="session")
def person() -> boto3.Session:
    return boto3.Session("person", "person", region_name=preset.REGION)


@pytest.fixture
def aws(host: Host, person: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Aws:
    monkeypatch.setenv("AWS_ENDPOINT_URL", host.aws)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return Aws(preset.REGION, session=person)


@pytest.fixture
def kit(host: Host) -> Iterator[FaultKit]:
    found = FaultKit(host.aws)
    yield found
    found.clear()


def launching(**more: Any) -> Scope:
    arguments = launch_arguments(ORDER, Candidate("c7i.large", None, "on-demand"))
    return Scope(launch={**arguments, **more})


def by_action(found: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.permission.action: finding for finding in found}


def world(aws: Aws) -> dict[str, Any]:
    """All that a probe could have made."""
    return {
        "objects": [one["Key"] for one in aws.s3.list_objects_v2(Bucket=preset.BUCKET).get("Contents", [])],
        "queues": aws.sqs.list_queues().get("QueueUrls", []),
        "parameters": [one["Name"] for one in aws.ssm.describe_parameters()["Parameters"]],
        "instances": aws.ec2.describe_instances()["Reservations"],
        "groups": [one["GroupName"] for one in aws.ec2.describe_security_groups()["SecurityGroups"]],
        "templates": aws.ec2.describe_launch_templates()["LaunchTemplates"],
        "fleets": aws.ec2.describe_fleets()["Fleets"],
    }


# Everything is there


def test_a_controller_with_all_permissions_lacks_none_and_nothing_was_made(aws: Aws) -> None:
    before = world(aws)
    found = by_action(require(aws, "controller", SCOPE))
    assert {action: found[action].outcome for action in CONTROLLER} == dict.fromkeys(CONTROLLER, Outcome.ALLOWED)
    assert world(aws) == before


def test_a_launcher_with_all_permissions_lacks_none_and_nothing_was_made(aws: Aws) -> None:
    before = world(aws)
    group = {"GroupName": "none-yet", "Description": "test", "VpcId": default_vpc(aws)}
    scope = Scope(launch=launching().launch, group=group)
    found = by_action(findings(aws, "launcher", scope, thorough=True))
    assert {one.outcome for one in found.values()} == {Outcome.ALLOWED}
    assert world(aws) == before


def default_vpc(aws: Aws) -> str:
    found = aws.ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    return str(found[0]["VpcId"])


def test_the_operator_is_asked_about_by_simulation(aws: Aws) -> None:
    found = findings(aws, "operator", Scope(), thorough=True)
    assert {finding.outcome for finding in found} == {Outcome.ALLOWED}
    assert [finding.permission for finding in found] == list(PERMISSIONS["operator"])


def test_an_operator_whom_iam_does_not_tell_is_not_judged(aws: Aws) -> None:
    fail(aws.iam, "SimulatePrincipalPolicy", "AccessDenied", "not you", status=403)
    found = findings(aws, "operator", Scope(), thorough=True)
    assert {finding.outcome for finding in found} == {Outcome.UNKNOWN}
    assert "AccessDenied: not you" in found[0].detail
    assert missing(found) == []


def test_what_the_simulation_denies_an_operator_lacks(aws: Aws) -> None:
    denied = {"EvalActionName": "cloudformation:CreateStack", "EvalDecision": "implicitDeny"}
    reply(aws.iam, "SimulatePrincipalPolicy", {"EvaluationResults": [denied]})
    assert [one.permission.action for one in missing_permissions(aws, "operator", Scope(), thorough=True)] == [
        "cloudformation:CreateStack"
    ]


def test_a_sessions_policies_are_those_of_its_role(aws: Aws) -> None:
    """A session's ARN has lost the role's path, and IAM simulates for the role."""
    asked: list[str] = []
    arn = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Research_0a1b/r.one@example.org"
    role = "arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Research_0a1b"
    reply(aws.sts, "GetCallerIdentity", {"Account": "123456789012", "Arn": arn, "UserId": "AROA:r.one"})
    reply(aws.iam, "GetRole", {"Role": {"Arn": role}})
    aws.iam.meta.events.register(
        "before-parameter-build.iam.SimulatePrincipalPolicy",
        lambda params, **_: asked.append(params["PolicySourceArn"]),
    )
    findings(aws, "operator", Scope(), thorough=True)
    assert set(asked) == {role}


# Something is missing


@dataclass(frozen=True)
class Denial:
    """A scripted refusal of one permission's call."""

    action: str
    operation: str
    code: str = "AccessDeniedException"
    status: int = 400
    match: str = ""


DENIALS = [
    Denial("ssm:GetParameter", "GetParameter"),
    Denial("ec2:DescribeImages", "DescribeImages", "UnauthorizedOperation", 403, "DryRun"),
    Denial("ec2:DescribeInstanceTypes", "DescribeInstanceTypes", "UnauthorizedOperation", 403, "DryRun"),
    Denial("s3:ListBucket", "ListObjectsV2", "AccessDenied", 403),
    Denial("s3:GetObject", "GetObject", "AccessDenied", 403),
    Denial("s3:PutObject", "PutObject", "AccessDenied", 403),
    Denial("s3:DeleteObject", "DeleteObject", "AccessDenied", 403),
    Denial("sqs:CreateQueue", "CreateQueue", "AccessDeniedException", 403),
    Denial("sqs:TagQueue", "TagQueue", "AccessDeniedException", 403),
    Denial("sqs:GetQueueAttributes", "GetQueueAttributes", "AccessDeniedException", 403),
    Denial("sqs:SendMessage", "SendMessage", "AccessDeniedException", 403),
    Denial("sqs:ReceiveMessage", "ReceiveMessage", "AccessDeniedException", 403),
    Denial("sqs:DeleteMessage", "DeleteMessage", "AccessDeniedException", 403),
    Denial("sqs:DeleteQueue", "DeleteQueue", "AccessDeniedException", 403),
    Denial("ssm:PutParameter", "PutParameter"),
    Denial("ssm:AddTagsToResource", "AddTagsToResource"),
    Denial("ssm:DescribeParameters", "DescribeParameters"),
    Denial("ssm:DeleteParameters", "DeleteParameters"),
]


def deny(kit: FaultKit, denial: Denial) -> None:
    kit.fault(
        denial.operation, match=denial.match, code=denial.code, status=denial.status, message="not you", times=None
    )


def test_every_needed_permission_of_a_controller_has_a_row() -> None:
    assert sorted(denial.action for denial in DENIALS) == sorted(CONTROLLER)


@pytest.mark.parametrize("denial", DENIALS, ids=attrgetter("action"))
@pytest.mark.fault("permission-missing")
def test_a_missing_permission_is_named_with_its_reason(aws: Aws, kit: FaultKit, denial: Denial) -> None:
    before = world(aws)
    deny(kit, denial)
    with pytest.raises(PermissionsMissing) as caught:
        require(aws, "controller", SCOPE)
    (finding,) = caught.value.missing
    assert finding.permission.action == denial.action
    message = str(caught.value)
    assert f"lacks a permission to run evals in {preset.REGION}; nothing was created:" in message
    assert f"\n  {denial.action}: needed to {finding.permission.why}" in message
    assert "arn:aws:" in message.partition(" lacks ")[0]
    kit.clear()
    assert world(aws) == before


@pytest.mark.fault("permission-missing")
def test_all_missing_permissions_are_named_at_once(aws: Aws, kit: FaultKit) -> None:
    for denial in DENIALS:
        deny(kit, denial)
    with pytest.raises(PermissionsMissing) as caught:
        require(aws, "controller", SCOPE)
    # Who may neither list nor read isn't told which of both it was.
    assert [one.permission.action for one in caught.value.missing] == [
        action for action in CONTROLLER if action != "s3:GetObject"
    ]
    assert len(str(caught.value).splitlines()) == len(CONTROLLER) - 1 + 2
    assert "docs/iam.md" in str(caught.value)


@pytest.mark.parametrize(
    ("lacks", "match"),
    [
        ({"iam:PassRole"}, r"IamInstanceProfile"),
        ({"ec2:CreateTags"}, r"TagSpecification"),
        ({"iam:PassRole", "ec2:CreateTags"}, r"IamInstanceProfile|TagSpecification"),
        ({"ec2:RunInstances"}, r"."),
    ],
)
@pytest.mark.fault("permission-missing")
def test_dry_runs_with_less_say_which_permission_a_launch_lacks(
    aws: Aws, kit: FaultKit, lacks: set[str], match: str
) -> None:
    before = world(aws)
    kit.fault(
        "RunInstances", match=f"(?s)(?=.*DryRun)(?:{match})", code="UnauthorizedOperation", status=403, times=None
    )
    with pytest.raises(PermissionsMissing, match=f"to launch instances in {preset.REGION}") as caught:
        require(aws, "launcher", launching())
    assert {one.permission.action for one in caught.value.missing} == lacks
    assert world(aws) == before


@pytest.mark.fault("permission-missing")
def test_a_group_that_may_not_be_made_is_no_reason_to_refuse_where_one_is_there(aws: Aws, kit: FaultKit) -> None:
    kit.fault("CreateSecurityGroup", match="DryRun", code="UnauthorizedOperation", status=403, times=None)
    group = {"GroupName": "none-yet", "Description": "test", "VpcId": default_vpc(aws)}
    found = by_action(require(aws, "launcher", Scope(launch=launching().launch, group=group)))
    assert found["ec2:CreateSecurityGroup"].outcome is Outcome.MISSING
    assert not found["ec2:CreateSecurityGroup"].blocks
    assert "one must be named" in found["ec2:CreateSecurityGroup"].line()


WRONG = [
    ("image", {"ImageId": preset.IMAGE_PENDING}, "InvalidAMIID.Unavailable"),
    ("subnet", {"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
    ("group", {"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
    ("profile", {"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
]


@pytest.mark.parametrize(("more", "code"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_parameter_that_a_dry_run_finds_is_told(aws: Aws, more: dict[str, Any], code: str) -> None:
    found = by_action(findings(aws, "launcher", launching(**more)))
    assert found["ec2:RunInstances"].outcome is Outcome.REFUSED
    assert code in found["ec2:RunInstances"].line()
    assert found["iam:PassRole"].outcome is Outcome.UNKNOWN
    assert missing(found.values()) == []


def test_an_image_that_is_not_shared_is_no_permission_that_is_missing(aws: Aws) -> None:
    fail(aws.ec2_once, "RunInstances", "AuthFailure", "Not authorized for images: [ami-1]", status=403)
    found = by_action(require(aws, "launcher", launching()))
    assert found["ec2:RunInstances"].outcome is Outcome.REFUSED
    assert "Not authorized for images" in found["ec2:RunInstances"].line()


def test_credentials_that_ec2_cannot_validate_are_no_permission_that_is_missing(aws: Aws) -> None:
    fail(aws.ec2_once, "DescribeImages", "AuthFailure", "AWS was not able to validate the credentials", status=401)
    found = by_action(require(aws, "controller", SCOPE))
    assert found["ec2:DescribeImages"].outcome is Outcome.REFUSED


# No verdict


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError", "ExpiredToken"])
@pytest.mark.fault("permission-missing")
def test_a_question_that_was_not_answered_is_no_verdict(aws: Aws, code: str) -> None:
    fail(aws.ec2_once, "DescribeImages", code, "later", status=503)
    found = by_action(require(aws, "controller", SCOPE))
    assert found["ec2:DescribeImages"].outcome is Outcome.UNKNOWN
    assert found["ec2:DescribeImages"].detail == f"{code}: later"


def test_a_bucket_that_is_not_there_is_told_and_no_matter_of_permissions(aws: Aws) -> None:
    found = by_action(findings(aws, "controller", Scope(bucket="no-such-bucket-anywhere", bucket_region=preset.REGION)))
    assert found["s3:PutObject"].outcome is Outcome.REFUSED
    assert "NoSuchBucket" in found["s3:PutObject"].detail


def test_what_nobody_asked_about_could_not_be_checked(aws: Aws) -> None:
    found = by_action(findings(aws, "controller", Scope()))
    assert found["s3:PutObject"].outcome is Outcome.UNKNOWN
    assert found["s3:PutObject"].detail == "there is no harmless way to ask"


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "Unsupported"])
def test_want_of_room_is_no_matter_of_permissions(code: str) -> None:
    assert outcome_of(code) is Outcome.ALLOWED


def test_who_is_nobody_is_told_so(aws: Aws) -> None:
    fail(aws.sts, "GetCallerIdentity", "ExpiredToken", "it has expired")
    with pytest.raises(CredentialsBad):
        findings(aws, "controller", SCOPE)


def test_an_error_keeps_its_facts_on_its_way_between_processes() -> None:
    one = Finding(Permission("s3:PutObject", "store plans"), Outcome.MISSING, "AccessDenied: no")
    error = PermissionsMissing(role="operator", who="arn:aws:iam::1:user/u", region="us-east-1", missing=(one, one))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert str(again) == str(error)
    assert str(error).startswith("arn:aws:iam::1:user/u lacks 2 permissions to set the account up in us-east-1")


# Once a process


@pytest.mark.fault("permission-missing")
def test_launches_of_one_kind_are_tried_once(aws: Aws) -> None:
    tried: list[Scope] = []
    preflights = Preflights(lambda _aws, _role, scope: tried.append(scope))
    again = {"UserData": "another", "ClientToken": "another"}
    scopes = [launching(), launching(**again), launching(InstanceType="m5.large"), launching()]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda scope: preflights.launcher(aws, scope), scopes))
    assert len(tried) == 2


def test_a_launch_that_was_not_permitted_is_tried_again(aws: Aws) -> None:
    answers: Iterator[Any] = iter(["denied", None])

    def check(*_: object) -> None:
        if next(answers):
            raise PermissionsMissing(role="launcher", who="", region="", missing=())

    preflights = Preflights(check)
    with pytest.raises(PermissionsMissing):
        preflights.launcher(aws, launching())
    preflights.launcher(aws, launching())
    preflights.launcher(aws, launching())


# The lists


@pytest.mark.parametrize("role", ["controller", "launcher", "operator"])
def test_each_permission_is_listed_once_with_a_reason(role: Role) -> None:
    actions = [one.action for one in PERMISSIONS[role]]
    assert len(set(actions)) == len(actions)
    assert all(one.why and ":" in one.action for one in PERMISSIONS[role])


@pytest.mark.parametrize("role", ["controller", "launcher"])
def test_the_accounts_policies_have_every_permission(role: str) -> None:
    """The template's policy of a role, as text, names each action of our list."""
    from fleet.account.template import template_text

    policy = template_text().partition(f"{role.capitalize()}Policy:")[2].partition("AWS::IAM::ManagedPolicy")[2]
    policy = policy.partition("ManagedPolicyName: inspect-fleet-")[2].partition("AWS::IAM::ManagedPolicy")[0]
    assert [one.action for one in PERMISSIONS[role] if f'"{one.action}"' not in policy] == []  # type: ignore[index]


@pytest.mark.parametrize("role", ["controller", "launcher", "operator"])
def test_every_simulated_resource_is_an_arn_of_the_account(role: Role) -> None:
    who = Caller(account="1", arn="arn:aws-cn:iam::1:user/u", name="u")
    for one in PERMISSIONS[role]:
        resource = resource_of(one.action, "cn-north-1", who, Scope())
        assert resource == "*" or resource.startswith(f"arn:aws-cn:{one.action.partition(':')[0]}:")
