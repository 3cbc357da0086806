"""The template says what the product relies on, within the limits that AWS sets."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fleet.account import names
from fleet.account.rendering import Rendering
from fleet.account.template import BODY_BYTES, FILE, ParameterUnknown, chosen_parameters, meaning, parameter_defaults
from fleet.aws.groups import GROUP_NAME
from fleet.aws.permissions import PERMISSIONS, Role
from fleet.local.policy import Request, decide
from fleet.pool.order import POOL_TAG
from worker_image.names import BUILD_TAG

ACCOUNT = "123456789012"
EVERYTHING = {"AlarmEmail": "a@b.c", "MonthlyBudget": "50", "ControlPlane": "running"}
FULL = Rendering(ACCOUNT, "us-east-1", parameters=EVERYTHING)
PLAIN = Rendering(ACCOUNT, "us-east-1")

BEYOND: dict[str, str] = {
    "s3:AbortMultipartUpload": "a large upload that breaks off is removed",
    "sqs:ChangeMessageVisibility": "a message is given back",
    "sqs:ListQueues": "queues of killed runs are found by their prefix",
    "sqs:ListQueueTags": "and by whose they are",
    "s3:GetObject": "the tail of a boot log is shown in the flow run's log",
    "s3:ListBucket": "a log that isn't there is 404, not 403",
}
"""Actions of the policies that no run fails without, so that the preflight doesn't ask for them; and what they are for."""


def documents() -> dict[str, dict[str, Any]]:
    """Every identity policy of the template, by its name."""
    found = {}
    for one in FULL.resources.values():
        properties = one["Properties"]
        if one["Type"] == "AWS::IAM::ManagedPolicy":
            found[properties["ManagedPolicyName"]] = properties["PolicyDocument"]
        for policy in properties.get("Policies", []):
            found[f"{policy['PolicyName']} (inline)"] = policy["PolicyDocument"]
    return found


DOCUMENTS = documents()
ALL = pytest.mark.parametrize("name", DOCUMENTS)


def actions(document: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for statement in document["Statement"]:
        listed = statement["Action"]
        found |= set(listed if isinstance(listed, list) else [listed])
    return found


def tagged(kind: str, tag: str = POOL_TAG) -> dict[str, tuple[str, ...]]:
    return {f"aws:{kind}/{tag}".lower(): ("p",)}


def arn(kind: str) -> str:
    return f"arn:aws:ec2:us-east-1:{ACCOUNT}:{kind}/x"


def test_it_fits_into_one_call() -> None:
    assert len(FILE.read_bytes()) <= BODY_BYTES


@ALL
def test_a_policy_is_within_iams_size(name: str) -> None:
    """6,144 characters for a managed policy, 10,240 for a role's inline ones; white space doesn't count (IAM quotas)."""
    size = len(re.sub(r"\s", "", json.dumps(DOCUMENTS[name])))
    assert size <= (10_240 if "inline" in name else 6_144)


@ALL
def test_each_statement_has_a_name_of_its_own_and_names_its_actions(name: str) -> None:
    statements = DOCUMENTS[name]["Statement"]
    sids = [statement["Sid"] for statement in statements]
    assert len(set(sids)) == len(sids)
    assert all(re.fullmatch(r"[A-Za-z0-9]+", sid) for sid in sids)
    assert DOCUMENTS[name]["Version"] == "2012-10-17"
    assert all(re.fullmatch(r"[a-z0-9]+:[A-Za-z]+", action) for action in actions(DOCUMENTS[name]))


@ALL
def test_nothing_unresolved_is_left_in_a_policy(name: str) -> None:
    """Only IAM's own variables, and no function of CloudFormation's."""
    text = json.dumps(DOCUMENTS[name])
    assert set(re.findall(r"\$\{([^}]+)\}", text)) <= {"ec2:SourceInstanceARN", "aws:userid"}
    assert "!" not in re.sub(r"\$\{[^}]+\}", "", text)


@ALL
def test_only_looking_and_denying_is_about_every_resource(name: str) -> None:
    for statement in DOCUMENTS[name]["Statement"]:
        if statement["Resource"] == "*" and statement["Effect"] == "Allow":
            looks = re.compile(
                r"ec2:Describe|pricing:Get|sqs:ListQueues|ssm:DescribeParameters|ssmmessages:|ssm:UpdateInstance"
            )
            assert all(looks.match(action) for action in actions({"Statement": [statement]})), statement["Sid"]


@pytest.mark.parametrize(
    ("role", "policy"), [("controller", names.CONTROLLER_POLICY), ("launcher", names.LAUNCHER_POLICY)]
)
def test_the_policies_give_what_the_preflight_asks_for_and_no_more(role: Role, policy: str) -> None:
    asked = {permission.action for permission in PERMISSIONS[role]}
    given = actions(DOCUMENTS[policy])
    assert asked <= given
    assert given - asked <= BEYOND.keys() | {"ec2:DeleteLaunchTemplate"}


def test_a_builder_of_images_touches_only_what_a_build_made() -> None:
    """Whatever changes or ends something is bound to a tag of ours, in the request or on the thing itself."""
    changing = re.compile(r"ec2:(CreateImage|TerminateInstances|Deregister|Delete|CreateTags|GetConsole)")
    for statement in DOCUMENTS[names.IMAGE_POLICY]["Statement"]:
        if any(changing.match(action) for action in actions({"Statement": [statement]})):
            bound = json.dumps(statement["Condition"])
            ours = ("inspect-fleet:", "ec2:CreateAction", "image/inspect-fleet-worker-")
            assert any(word in bound for word in ours), statement["Sid"]


@pytest.mark.parametrize(
    ("kind", "action", "context", "decision"),
    [
        ("security-group", "ec2:CreateSecurityGroup", tagged("requesttag", BUILD_TAG), "allowed"),
        ("security-group", "ec2:CreateSecurityGroup", {}, "not allowed"),
        ("vpc", "ec2:CreateSecurityGroup", {}, "allowed"),
        ("security-group", "ec2:CreateTags", {"ec2:createaction": ("CreateSecurityGroup",)}, "allowed"),
        ("security-group", "ec2:CreateTags", {}, "not allowed"),
        ("security-group", "ec2:AuthorizeSecurityGroupIngress", tagged("resourcetag", BUILD_TAG), "not allowed"),
    ],
)
def test_a_builder_of_images_makes_the_closed_group_where_a_region_has_none(
    kind: str, action: str, context: Any, decision: str
) -> None:
    document = json.dumps(DOCUMENTS[names.IMAGE_POLICY])
    assert decide([document], Request(action, arn(kind), context)) == decision


@pytest.mark.parametrize(
    ("recipe", "decision"),
    [("inspect-fleet-worker-x86-64", "allowed"), ("others", "not allowed"), ("", "not allowed")],
)
def test_a_builder_of_images_tags_what_the_projects_own_pipelines_made(recipe: str, decision: str) -> None:
    made = f"arn:aws:imagebuilder:us-east-1:{ACCOUNT}:image/{recipe}/1.0.0/3"
    context = {"aws:resourcetag/ec2imagebuilderarn": (made,)} if recipe else {}
    request = Request("ec2:CreateTags", "arn:aws:ec2:us-east-1::image/ami-1", context)
    assert decide([json.dumps(DOCUMENTS[names.IMAGE_POLICY])], request) == decision


def test_whoever_connects_opens_the_data_channel_of_own_sessions() -> None:
    """AWS asks for it of the person whose plugin carries the session, not only of the instance."""
    (statement,) = (
        one
        for one in DOCUMENTS["inspect-fleet-connect"]["Statement"]
        if "ssmmessages:OpenDataChannel" in actions({"Statement": [one]})
    )
    assert statement["Resource"].endswith(":session/${aws:userid}-*")


@pytest.mark.parametrize(
    ("parameters", "holds"),
    [
        ({}, [True, True]),
        ({"VpcId": "vpc-0123abcd"}, [False, True]),
        ({"VpcId": "vpc-0123abcd", "ControlPlaneSubnet": "subnet-0123abcd"}, [True, False]),
        ({"ControlPlaneSubnet": "subnet-0123abcd", "ControlPlaneZone": "us-east-1a"}, [True, True]),
    ],
)
def test_a_control_plane_stands_where_its_group_and_volume_are(parameters: dict[str, str], holds: list[bool]) -> None:
    rendering = Rendering(ACCOUNT, "us-east-1", parameters={"ControlPlane": "running", **parameters})
    rule = rendering.template["Rules"]["ControlPlanePlace"]
    assert rendering.resolve(rule["RuleCondition"])
    assert [rendering.resolve(one["Assert"]) for one in rule["Assertions"]] == holds
    assert not PLAIN.resolve(rule["RuleCondition"])


def test_resources_have_the_names_by_which_they_are_found() -> None:
    properties = {name: one["Properties"] for name, one in PLAIN.resources.items()}
    assert properties["Bucket"]["BucketName"] == names.bucket(ACCOUNT, "us-east-1")
    assert properties["WorkerRole"]["RoleName"] == names.ROLE
    assert properties["WorkerProfile"]["InstanceProfileName"] == names.PROFILE
    assert properties["WorkerSecurityGroup"]["GroupName"] == names.SECURITY_GROUP == GROUP_NAME
    assert properties["ControllerPolicy"]["ManagedPolicyName"] == names.CONTROLLER_POLICY
    assert properties["LauncherPolicy"]["ManagedPolicyName"] == names.LAUNCHER_POLICY
    assert properties["ImagePolicy"]["ManagedPolicyName"] == names.IMAGE_POLICY
    assert parameter_defaults()["Prefix"] == names.PREFIX


def test_an_account_that_asks_for_nothing_gets_nothing_that_costs() -> None:
    kinds = {one["Type"] for one in PLAIN.resources.values()}
    assert kinds <= {
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
        "AWS::IAM::Role",
        "AWS::IAM::InstanceProfile",
        "AWS::IAM::ManagedPolicy",
        "AWS::EC2::SecurityGroup",
        "AWS::ImageBuilder::Component",
        "AWS::ImageBuilder::DistributionConfiguration",
        "AWS::ImageBuilder::ImagePipeline",
        "AWS::ImageBuilder::ImageRecipe",
        "AWS::ImageBuilder::InfrastructureConfiguration",
    }


def test_results_never_expire_and_outlive_the_stack() -> None:
    bucket = PLAIN.template["Resources"]["Bucket"]
    assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"
    rules = PLAIN.resources["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    expiring = [rule["Prefix"] for rule in rules if "ExpirationInDays" in rule]
    assert not any(f"{names.PREFIX}/evals/".startswith(prefix) for prefix in expiring)


def test_nothing_comes_in_to_a_worker() -> None:
    assert "SecurityGroupIngress" not in PLAIN.resources["WorkerSecurityGroup"]["Properties"]


def asked(policy: str, action: str, resource: str, **context: str) -> str:
    values = {key.replace("__", ":").replace("_of_", "/").lower(): (value,) for key, value in context.items()}
    return decide([json.dumps(DOCUMENTS[policy])], Request(action, resource, values))


@pytest.mark.parametrize(
    ("action", "kind", "context", "decision"),
    [
        ("ec2:RunInstances", "instance", tagged("requesttag"), "allowed"),
        ("ec2:RunInstances", "instance", {}, "not allowed"),
        ("ec2:RunInstances", "instance", tagged("requesttag", "another"), "not allowed"),
        ("ec2:RunInstances", "subnet", {}, "allowed"),
        ("ec2:TerminateInstances", "instance", tagged("resourcetag"), "allowed"),
        ("ec2:TerminateInstances", "instance", {}, "not allowed"),
        ("ec2:CreateTags", "instance", {"ec2:createaction": ("RunInstances",)}, "allowed"),
        ("ec2:CreateTags", "instance", {}, "not allowed"),
        ("ec2:CreateTags", "instance", {"ec2:createaction": ("CreateVpc",)}, "not allowed"),
        ("ec2:CreateTags", "instance", tagged("resourcetag"), "allowed"),
        ("ec2:CreateLaunchTemplate", "launch-template", tagged("requesttag"), "allowed"),
        ("ec2:DeleteLaunchTemplate", "launch-template", tagged("resourcetag"), "allowed"),
        ("ec2:DeleteLaunchTemplate", "launch-template", {}, "not allowed"),
        ("ec2:DeleteVolume", "volume", tagged("resourcetag"), "allowed"),
        ("ec2:DeleteVolume", "volume", {}, "not allowed"),
        ("ec2:StopInstances", "instance", tagged("resourcetag"), "not allowed"),
        ("iam:CreateRole", "role", {}, "not allowed"),
    ],
)
def test_a_pool_worker_launches_with_its_tag_and_ends_its_own(
    action: str, kind: str, context: Any, decision: str
) -> None:
    document = json.dumps(DOCUMENTS[names.LAUNCHER_POLICY])
    assert decide([document], Request(action, arn(kind), context)) == decision


@pytest.mark.parametrize(
    ("role", "service", "decision"),
    [
        (names.ROLE, "ec2.amazonaws.com", "allowed"),
        (names.ROLE, "lambda.amazonaws.com", "not allowed"),
        ("administrator", "ec2.amazonaws.com", "not allowed"),
    ],
)
def test_a_pool_worker_gives_instances_the_worker_role_and_no_other(role: str, service: str, decision: str) -> None:
    resource = f"arn:aws:iam::{ACCOUNT}:role/{role}"
    assert asked(names.LAUNCHER_POLICY, "iam:PassRole", resource, iam__PassedToService=service) == decision


def test_a_controller_hands_out_secrets_and_reads_none() -> None:
    secret = f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/inspect-fleet/instances/run/i-1"
    assert asked(names.CONTROLLER_POLICY, "ssm:PutParameter", secret) == "allowed"
    assert asked(names.CONTROLLER_POLICY, "ssm:GetParameter", secret) == "not allowed"


@pytest.mark.parametrize(
    ("instance_type", "classes"),
    [
        ("c7i.4xlarge, m8g.large", {"Standard/OnDemand", "Standard/Spot"}),
        ("g6.xlarge, vt1.3xlarge", {"G/OnDemand", "G/Spot"}),
        ("p4d.24xlarge", {"P/OnDemand", "P/Spot"}),
        ("p5.48xlarge", {"P/OnDemand", "P5/Spot"}),
        ("x2idn.16xlarge", {"X/OnDemand", "X/Spot"}),
        ("u-6tb1.56xlarge", {"HighMem/OnDemand"}),  # EC2 has no spot quota of theirs
    ],
)
def test_the_alarm_for_instances_that_stay_rings_for_whatever_boots_the_worker_image(
    instance_type: str, classes: set[str]
) -> None:
    """By the classes in which EC2 reports its vCPUs, one for each quota (Service Quotas, usage metrics of EC2's quotas)."""
    alarm = FULL.resources["LongLivedInstances"]["Properties"]
    assert classes <= set(counted(alarm).values()), instance_type
    assert set(re.split(r" \+ ", alarm["Metrics"][0]["Expression"])) == counted(alarm).keys()


def test_the_alarm_is_one_that_cloudwatch_takes() -> None:
    """Ten metrics, and seven days of periods (CloudWatch User Guide, limits of alarms)."""
    alarm = FULL.resources["LongLivedInstances"]["Properties"]
    assert len(counted(alarm)) <= 10
    periods = {one["MetricStat"]["Period"] for one in alarm["Metrics"][1:]}
    longest = FULL.template["Parameters"]["AlarmHours"]["MaxValue"]
    assert {seconds * longest <= 7 * 86_400 for seconds in periods} == {True}
    assert [one["Id"] for one in alarm["Metrics"] if one["ReturnData"]] == ["in_use"]


def counted(alarm: Any) -> dict[str, str]:
    """The class that each metric of the alarm counts."""
    return {
        one["Id"]: dimension["Value"]
        for one in alarm["Metrics"]
        if "MetricStat" in one
        for dimension in one["MetricStat"]["Metric"]["Dimensions"]
        if dimension["Name"] == "Class"
    }


def test_a_parameter_is_given_by_its_name_in_any_case() -> None:
    assert chosen_parameters({"logdays": 30, "Subnets": ["subnet-1", "subnet-2"]}) == {
        "LogDays": "30",
        "Subnets": "subnet-1,subnet-2",
    }
    with pytest.raises(ParameterUnknown, match=r"--param vpc: .*VpcId"):
        chosen_parameters({"vpc": "vpc-1"})


def test_comments_are_no_meaning() -> None:
    assert meaning("a: !Ref b # why") == meaning("# more\na: !Ref b") == {"a": {"!Ref": "b"}}
    assert meaning("a: !Sub x") != meaning("a: x")
