"""Harmless questions, one for each permission: what AWS answers says whether the identity may, and nothing comes of it.

EC2 has `DryRun`. The other services judge an identity before they judge what it asks for, so that a call which can't succeed
tells as much: a queue whose dead-letter queue doesn't exist, a parameter whose value doesn't fit its own pattern, an object whose
digest is another's, and the removal of what isn't there. `Probe.expected` holds the codes of those answers.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.fleets import NO_TEMPLATE
from fleet.aws.identity import Caller
from fleet.aws.images import UNKNOWN_PARAMETER
from fleet.aws.permissions import Finding, Outcome, Role, outcome_of, permission
from fleet.aws.queues import GONE, LAPSED, NO_TARGET
from fleet.aws.session import Aws

NAME = "preflight"
"""Last part of the names that are asked about: nothing of that name is ever made."""
QUEUE = f"inspect-fleet-{NAME}"


@dataclass(frozen=True, slots=True)
class Scope:
    """On what the permissions are tried."""

    bucket: str = ""
    """Empty: S3 isn't asked."""
    bucket_region: str = ""
    """Empty: the fleet's."""
    prefix: str = "inspect-fleet"
    parameter_path: str = "/inspect-fleet/instances"
    """Empty: nobody has to write secrets."""
    image_parameter: str = "/inspect-fleet/worker-image"
    """Empty: the image is named by id, and nobody has to read the parameter."""
    launch: Mapping[str, Any] | None = None
    """The arguments of RunInstances as a launch would give them; None: there is no launch to try."""
    group: Mapping[str, Any] | None = None
    """Likewise of CreateSecurityGroup; None: none has to be made."""
    instance: str = ""
    """An instance of this deployment, which a termination is tried on; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A question on one permission."""

    action: str
    call: Callable[[], object]
    expected: frozenset[str] = frozenset()
    """Error codes that only those get who may."""

    def ask(self, role: Role) -> Finding:
        """What AWS's answer says."""
        one = permission(role, self.action)
        try:
            with calling(self.action.partition(":")[0]):
                self.call()
        except AwsRefused as refusal:
            outcome = outcome_of(refusal.code, expected=self.expected)
            return Finding(one, outcome, "" if outcome is Outcome.ALLOWED else said(refusal))
        return Finding(one, Outcome.ALLOWED)


def said(refusal: AwsRefused) -> str:
    """AWS's code and words."""
    return f"{refusal.code}: {refusal.why}" if refusal.why else refusal.code


def controller_probes(aws: Aws, scope: Scope, who: Caller) -> list[Probe]:
    """What is asked for a controller."""
    return [
        *_image_probes(aws, scope),
        Probe("ec2:DescribeInstances", lambda: aws.ec2_once.describe_instances(DryRun=True)),
        *_object_probes(aws, scope),
        *_queue_probes(aws, who),
        *_secret_probes(aws, scope),
    ]


def launcher_probes(aws: Aws, scope: Scope, *, thorough: bool) -> list[Probe]:
    """What is asked for a launcher, beside the launch itself (`launch_findings`). `thorough`: also what isn't needed."""
    ec2 = aws.ec2_once
    probes = [
        *_image_probes(aws, scope),
        Probe("ec2:DescribeInstances", lambda: ec2.describe_instances(DryRun=True)),
        Probe("ec2:DescribeSubnets", lambda: ec2.describe_subnets(DryRun=True)),
        Probe("ec2:DescribeSecurityGroups", lambda: ec2.describe_security_groups(DryRun=True)),
    ]
    if scope.group is not None:
        group = dict(scope.group)
        probes.append(Probe("ec2:CreateSecurityGroup", lambda: ec2.create_security_group(**group, DryRun=True)))
    if scope.instance:
        ids = [scope.instance]
        probes.append(Probe("ec2:TerminateInstances", lambda: ec2.terminate_instances(InstanceIds=ids, DryRun=True)))
    if thorough:
        probes += [
            Probe("ec2:DescribeVpcs", lambda: ec2.describe_vpcs(DryRun=True)),
            Probe("ec2:DescribeLaunchTemplates", lambda: ec2.describe_launch_templates(DryRun=True)),
            Probe("ec2:DescribeVolumes", lambda: ec2.describe_volumes(DryRun=True)),
            Probe("ec2:DescribeInstanceTypeOfferings", lambda: ec2.describe_instance_type_offerings(DryRun=True)),
            *_fleet_probes(aws, scope),
        ]
    return probes


def launch_findings(aws: Aws, launch: Mapping[str, Any]) -> list[Finding]:
    """What a dry run of a launch says of the three permissions it needs; where it is refused, dry runs with less say which."""
    actions = ("ec2:RunInstances", "ec2:CreateTags", "iam:PassRole")
    run, tag, give = (permission("launcher", action) for action in actions)
    without_profile, without_tags = ({"IamInstanceProfile"}, {"TagSpecifications"})
    whole, detail = _try_launch(aws, launch, set())
    if whole is Outcome.ALLOWED:
        return [Finding(one, Outcome.ALLOWED) for one in (run, tag, give)]
    if whole is not Outcome.MISSING:
        # EC2 may look at the parameters first: nothing is known of the identity then.
        why = "the launch was refused for another reason"
        return [Finding(run, whole, detail), *(Finding(one, Outcome.UNKNOWN, why) for one in (tag, give))]
    for left_out, lacks in (
        (without_profile, (give,)),
        (without_tags, (tag,)),
        (without_profile | without_tags, (tag, give)),
    ):
        if _try_launch(aws, launch, left_out)[0] is not Outcome.MISSING:
            return [
                Finding(one, Outcome.MISSING, detail) if one in lacks else Finding(one, Outcome.ALLOWED)
                for one in (run, tag, give)
            ]
    why = "only who may launch is told"
    return [Finding(run, Outcome.MISSING, detail), *(Finding(one, Outcome.UNKNOWN, why) for one in (tag, give))]


def _try_launch(aws: Aws, launch: Mapping[str, Any], left_out: set[str]) -> tuple[Outcome, str]:
    # The token stays unused: a launch that comes with other arguments later would be refused for it.
    arguments = {key: value for key, value in launch.items() if key not in {"ClientToken", *left_out}}
    try:
        with calling("ec2"):
            aws.ec2_once.run_instances(**arguments, DryRun=True)
    except AwsRefused as refusal:
        return outcome_of(refusal.code), said(refusal)
    return Outcome.ALLOWED, ""


def _image_probes(aws: Aws, scope: Scope) -> list[Probe]:
    ec2, ssm, name = aws.ec2_once, aws.ssm, scope.image_parameter
    probes = [
        Probe("ec2:DescribeImages", lambda: ec2.describe_images(DryRun=True)),
        Probe(
            "ec2:DescribeInstanceTypes",
            lambda: ec2.describe_instance_types(InstanceTypes=["t3.micro"], DryRun=True),
        ),
    ]
    if name:
        probes.append(Probe("ssm:GetParameter", lambda: ssm.get_parameter(Name=name), UNKNOWN_PARAMETER))
    return probes


def _object_probes(aws: Aws, scope: Scope) -> list[Probe]:
    if not scope.bucket:
        return []
    home = aws if scope.bucket_region in ("", aws.region) else Aws(scope.bucket_region)
    s3, bucket, key = home.s3, scope.bucket, f"{scope.prefix}/{NAME}"
    another = base64.b64encode(hashlib.md5(b"another", usedforsecurity=False).digest()).decode()
    return [
        Probe("s3:ListBucket", lambda: s3.list_objects_v2(Bucket=bucket, Prefix=f"{scope.prefix}/", MaxKeys=1)),
        Probe("s3:GetObject", lambda: s3.get_object(Bucket=bucket, Key=key), frozenset({"NoSuchKey", "404"})),
        Probe(
            "s3:PutObject",
            lambda: s3.put_object(Bucket=bucket, Key=key, Body=b"", ContentMD5=another),
            frozenset({"BadDigest"}),
        ),
        Probe("s3:DeleteObject", lambda: s3.delete_object(Bucket=bucket, Key=key)),
    ]


def _queue_probes(aws: Aws, who: Caller) -> list[Probe]:
    sqs = aws.sqs
    url = f"{sqs.meta.endpoint_url.rstrip('/')}/{who.account}/{QUEUE}"
    absent = f"arn:{who.partition}:sqs:{aws.region}:{who.account}:{QUEUE}-absent"
    redrive = json.dumps({"deadLetterTargetArn": absent, "maxReceiveCount": 1})
    return [
        Probe(
            "sqs:CreateQueue",
            lambda: sqs.create_queue(QueueName=QUEUE, Attributes={"RedrivePolicy": redrive}),
            NO_TARGET,
        ),
        Probe("sqs:TagQueue", lambda: sqs.tag_queue(QueueUrl=url, Tags={"inspect-fleet": NAME}), GONE),
        Probe(
            "sqs:GetQueueAttributes",
            lambda: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"]),
            GONE,
        ),
        Probe("sqs:SendMessage", lambda: sqs.send_message(QueueUrl=url, MessageBody=NAME), GONE),
        Probe("sqs:ReceiveMessage", lambda: sqs.receive_message(QueueUrl=url, WaitTimeSeconds=0), GONE),
        Probe("sqs:DeleteMessage", lambda: sqs.delete_message(QueueUrl=url, ReceiptHandle=NAME), GONE | LAPSED),
        Probe("sqs:DeleteQueue", lambda: sqs.delete_queue(QueueUrl=url), GONE),
    ]


def _secret_probes(aws: Aws, scope: Scope) -> list[Probe]:
    if not scope.parameter_path:
        return []
    ssm, name = aws.ssm, f"{scope.parameter_path}/{NAME}"
    return [
        Probe(
            "ssm:PutParameter",
            lambda: ssm.put_parameter(Name=name, Value=NAME, Type="String", AllowedPattern="^$"),
            frozenset({"ParameterPatternMismatchException"}),
        ),
        Probe(
            "ssm:AddTagsToResource",
            lambda: ssm.add_tags_to_resource(
                ResourceType="Parameter", ResourceId=name, Tags=[{"Key": "inspect-fleet", "Value": NAME}]
            ),
            frozenset({"InvalidResourceId"}),
        ),
        Probe("ssm:DescribeParameters", lambda: ssm.describe_parameters(MaxResults=1)),
        Probe("ssm:DeleteParameters", lambda: ssm.delete_parameters(Names=[name])),
    ]


def _fleet_probes(aws: Aws, scope: Scope) -> list[Probe]:
    ec2 = aws.ec2_once
    launch = scope.launch or {}
    tags: list[Any] = next((one["Tags"] for one in launch.get("TagSpecifications", [])), [])
    marked: list[Any] = [{"ResourceType": "launch-template", "Tags": tags}] if tags else []
    return [
        Probe(
            "ec2:CreateLaunchTemplate",
            lambda: ec2.create_launch_template(
                LaunchTemplateName=QUEUE,
                LaunchTemplateData={"InstanceType": launch.get("InstanceType", "t3.micro")},
                TagSpecifications=marked,
                DryRun=True,
            ),
        ),
        Probe(
            "ec2:CreateFleet",
            lambda: ec2.create_fleet(
                Type="instant",
                LaunchTemplateConfigs=[
                    {"LaunchTemplateSpecification": {"LaunchTemplateName": QUEUE, "Version": "$Latest"}}
                ],
                TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
                DryRun=True,
            ),
            NO_TEMPLATE,
        ),
    ]
