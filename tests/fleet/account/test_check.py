"""An account is looked at resource by resource, and what is gone is named, and made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fleet.account.change import expected_values, plan_stack
from fleet.account.check import block_values, check_account
from fleet.account.findings import to_mend
from fleet.account.names import LAUNCHER_POLICY, ROLE, SECURITY_GROUP, STACK
from fleet.account.resources import differing
from fleet.account.stack import AccountStack
from fleet.account.template import parameter_defaults
from fleet.aws.session import Aws
from fleet.local import preset
from tests.fleet.local.conftest import Host


def stack_of(aws: Aws) -> AccountStack:
    return AccountStack(aws, STACK, sleep=lambda _: None)


def bad(aws: Aws) -> dict[str, str]:
    """What isn't well, and how."""
    return {one.what: one.status for one in to_mend(check_account(aws, stack_of(aws).state()))}


def test_moto_deploys_the_template_in_full_and_all_of_it_is_as_it_should_be(aws: Aws) -> None:
    state = stack_of(aws).state()
    assert state.status == "CREATE_COMPLETE"
    assert state.parameters == parameter_defaults()
    assert bad(aws) == {}
    assert stack_of(aws).plan(state, {}).empty


def test_the_account_block_can_be_foretold_from_the_template(aws: Aws) -> None:
    state = stack_of(aws).state()
    assert expected_values(aws, state, {}) == block_values("us-east-1", state)
    subnets = expected_values(aws, state, {"Subnets": "subnet-00000001,subnet-00000002", "Prefix": "mine"})
    assert (subnets["subnets"], subnets["prefix"]) == (["subnet-00000001", "subnet-00000002"], "mine")


def delete_role_policy(host: Host) -> None:
    host.client("iam").delete_role_policy(RoleName=ROLE, PolicyName=ROLE)


def open_the_group(host: Host) -> None:
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    host.client("ec2").authorize_security_group_ingress(GroupName=SECURITY_GROUP, IpPermissions=[rule])


def widen_the_role(host: Host) -> None:
    document = {
        "Version": "2012-10-17",
        "Statement": [{"Sid": "All", "Effect": "Allow", "Action": "*", "Resource": "*"}],
    }
    host.client("iam").put_role_policy(RoleName=ROLE, PolicyName=ROLE, PolicyDocument=json.dumps(document))


BUCKET = f"bucket {preset.BUCKET}"
CASES: list[tuple[Callable[[Host], Any], str, str, str]] = [
    (
        lambda host: host.client("s3").delete_bucket_policy(Bucket=preset.BUCKET),
        f"policy of {BUCKET}",
        "missing",
        "BucketPolicy",
    ),
    (
        lambda host: host.client("ec2").delete_security_group(GroupName=SECURITY_GROUP),
        f"security group {SECURITY_GROUP}",
        "missing",
        "WorkerSecurityGroup",
    ),
    (
        lambda host: host.client("iam").delete_policy(
            PolicyArn=f"arn:aws:iam::{preset.ACCOUNT}:policy/{LAUNCHER_POLICY}"
        ),
        f"policy {LAUNCHER_POLICY}",
        "missing",
        "LauncherPolicy",
    ),
]


@pytest.mark.parametrize(("remove", "what", "status", "resource"), CASES, ids=[case[1] for case in CASES])
def test_a_resource_that_somebody_removed_is_named_and_made_again(
    aws: Aws, host: Host, remove: Callable[[Host], Any], what: str, status: str, resource: str
) -> None:
    remove(host)
    assert bad(aws) == {what: status}
    state, plan, unmended = plan_stack(aws, stack_of(aws), {})
    assert (state.exists, [one.resource for one in plan.resources], unmended) == (True, [resource], [])
    stack_of(aws).carry_out(plan)
    assert bad(aws) == {}


@pytest.mark.parametrize(
    ("change", "what", "status", "detail"),
    [
        (open_the_group, f"security group {SECURITY_GROUP}", "different", "it lets traffic in"),
        (
            lambda host: host.client("s3").delete_bucket_lifecycle(Bucket=preset.BUCKET),
            f"lifecycle of {BUCKET}",
            "missing",
            "it isn't there",
        ),
        (
            lambda host: host.client("s3").delete_public_access_block(Bucket=preset.BUCKET),
            f"public access block of {BUCKET}",
            "missing",
            "it isn't there",
        ),
        (
            lambda host: host.client("ssm").delete_parameter(Name=preset.IMAGE_PARAMETER),
            f"worker image {preset.IMAGE_PARAMETER}",
            "missing",
            "image",
        ),
        (widen_the_role, f"policy {ROLE} of role {ROLE}", "different", "it lacks OwnParameters"),
        (delete_role_policy, f"policy {ROLE} of role {ROLE}", "missing", "it isn't there"),
    ],
    ids=["open group", "lifecycle", "public access", "image", "wide role", "no role policy"],
)
def test_what_somebody_changed_is_named_with_why_it_matters(
    aws: Aws, host: Host, change: Callable[[Host], Any], what: str, status: str, detail: str
) -> None:
    change(host)
    (found,) = [one for one in to_mend(check_account(aws, stack_of(aws).state())) if one.what == what]
    assert found.status == status
    assert detail in found.detail
    assert found.why


def test_an_account_without_a_stack_lacks_it_and_is_told_what_makes_it(aws: Aws) -> None:
    absent = AccountStack(aws, "another", sleep=lambda _: None).state()
    found = check_account(aws, absent)[0]
    assert (found.what, found.status) == ("stack another in us-east-1", "missing")
    assert "`fleet setup --stack another --region us-east-1` makes it" in found.line()


def statement(sid: str, action: Any = "s3:GetObject") -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": action, "Resource": ["a"]}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([statement("A"), statement("B")], ""),
        ([statement("B"), statement("A", ["s3:GetObject"])], ""),  # order, and a list of one, say the same
        ([statement("A")], "it lacks B"),
        ([statement("A"), statement("B"), statement("C")], "it has also C"),
        ([statement("A", "s3:*"), statement("B")], "it has otherwise A"),
    ],
)
def test_policies_are_compared_statement_by_statement(found: list[Any], said: str) -> None:
    wanted = {"Statement": [statement("A"), statement("B")]}
    assert differing({"Statement": found}, wanted) == said
