"""What an instance may do: calls with its own credentials, judged by the policy text that the account's template deploys."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet.local import preset
from fleet.local.calls import Call
from fleet.local.permission import parameter_name, requests
from tests.fleet.local.conftest import Host

PATH = "/inspect-fleet/instances"
S3 = {"Bucket": preset.BUCKET}
OTHER_BUCKET = "somebody-elses"


@pytest.fixture(scope="module")
def instance(host: Host) -> Any:
    ec2 = host.client("ec2")
    found = ec2.run_instances(
        ImageId=preset.IMAGE,
        InstanceType="c7i.4xlarge",
        MinCount=1,
        MaxCount=1,
        IamInstanceProfile={"Name": preset.PROFILE},
    )["Instances"][0]["InstanceId"]
    yield found
    ec2.terminate_instances(InstanceIds=[found])


@pytest.fixture(scope="module")
def world(host: Host) -> None:
    """Something to be denied: each of these exists."""
    s3, ssm, sqs = host.client("s3"), host.client("ssm"), host.client("sqs")
    s3.create_bucket(Bucket=OTHER_BUCKET)
    for bucket in (preset.BUCKET, OTHER_BUCKET):
        for key in ("inspect-fleet/artifacts/a", "inspect-fleet/evals/e/manifest.json", "another/key"):
            s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    ssm.put_parameter(Name="/inspect-fleet/shared/docker-user", Value="u", Type="SecureString", Overwrite=True)
    ssm.put_parameter(Name="/another/parameter", Value="s", Type="SecureString", Overwrite=True)
    for name in ("inspect-fleet-abc-work", "another-queue"):
        sqs.create_queue(QueueName=name)


@pytest.fixture(scope="module")
def call(host: Host, instance: str, world: None) -> Callable[..., str]:
    """A call as the instance: `ok`, or AWS's code."""
    clients: dict[str, Any] = {}

    def ask(service: str, operation: str, **parameters: Any) -> str:
        if service not in clients:
            clients[service] = host.as_instance(service, instance)
        try:
            getattr(clients[service], operation)(**parameters)
        except ClientError as refused:
            return str(refused.response["Error"]["Code"])
        return "ok"

    return ask


def queue(name: str) -> str:
    return f"http://127.0.0.1/{preset.ACCOUNT}/{name}"


def table(*rows: tuple[str, str, dict[str, Any], str]) -> pytest.MarkDecorator:
    ids = [f"{operation} {list(parameters.values())[-1:]} {code}" for _, operation, parameters, code in rows]
    return pytest.mark.parametrize(("service", "operation", "parameters", "code"), rows, ids=ids)


@table(
    ("s3", "get_object", {**S3, "Key": "inspect-fleet/artifacts/a"}, "ok"),
    ("s3", "head_object", {**S3, "Key": "inspect-fleet/evals/e/manifest.json"}, "ok"),
    ("s3", "get_object", {**S3, "Key": "inspect-fleet/absent"}, "NoSuchKey"),
    ("s3", "put_object", {**S3, "Key": "inspect-fleet/evals/e/jobs/j.eval", "Body": b"x"}, "ok"),
    ("s3", "put_object", {**S3, "Key": "inspect-fleet/evals/e/jobs/k.eval", "Body": b"x", "IfNoneMatch": "*"}, "ok"),
    ("s3", "put_object", {**S3, "Key": "inspect-fleet/evals/e/failures/j/1.json", "Body": b"x"}, "ok"),
    ("s3", "put_object", {**S3, "Key": "inspect-fleet/runs/r/instances/i/boot.log", "Body": b"x"}, "ok"),
    ("s3", "create_multipart_upload", {**S3, "Key": "inspect-fleet/evals/e/jobs/big.eval"}, "ok"),
    ("s3", "list_objects_v2", {**S3, "Prefix": "inspect-fleet/evals/e/jobs/"}, "ok"),
    ("s3", "get_object", {**S3, "Key": "another/key"}, "AccessDenied"),
    ("s3", "get_object", {"Bucket": OTHER_BUCKET, "Key": "inspect-fleet/artifacts/a"}, "AccessDenied"),
    ("s3", "put_object", {**S3, "Key": "inspect-fleet/artifacts/a", "Body": b"x"}, "AccessDenied"),
    ("s3", "put_object", {**S3, "Key": "inspect-fleet/evals/e/manifest.json", "Body": b"x"}, "AccessDenied"),
    ("s3", "put_object", {**S3, "Key": "another/key", "Body": b"x"}, "AccessDenied"),
    ("s3", "delete_object", {**S3, "Key": "inspect-fleet/evals/e/jobs/j.eval"}, "AccessDenied"),
    ("s3", "delete_objects", {**S3, "Delete": {"Objects": [{"Key": "inspect-fleet/artifacts/a"}]}}, "AccessDenied"),
    ("s3", "get_object_acl", {**S3, "Key": "inspect-fleet/artifacts/a"}, "AccessDenied"),
    (
        "s3",
        "put_object_tagging",
        {**S3, "Key": "inspect-fleet/evals/e/jobs/j.eval", "Tagging": {"TagSet": []}},
        "AccessDenied",
    ),
    ("s3", "list_objects_v2", {**S3, "Prefix": "another/"}, "AccessDenied"),
    ("s3", "get_bucket_policy", {**S3}, "AccessDenied"),
    ("s3", "put_bucket_policy", {**S3, "Policy": "{}"}, "AccessDenied"),
    ("s3", "get_bucket_location", {**S3}, "AccessDenied"),
    ("s3", "list_buckets", {}, "AccessDenied"),
)
def test_objects(call: Callable[..., str], service: str, operation: str, parameters: dict[str, Any], code: str) -> None:
    """Reads the deployment's prefix, writes results and logs; never code that others run, plans or manifests."""
    assert call(service, operation, **parameters) == code


@table(
    ("sqs", "send_message", {"QueueUrl": queue("inspect-fleet-abc-work"), "MessageBody": "x"}, "ok"),
    ("sqs", "receive_message", {"QueueUrl": queue("inspect-fleet-abc-work")}, "ok"),
    ("sqs", "get_queue_attributes", {"QueueUrl": queue("inspect-fleet-abc-work"), "AttributeNames": ["All"]}, "ok"),
    ("sqs", "receive_message", {"QueueUrl": queue("another-queue")}, "AccessDenied"),
    ("sqs", "send_message", {"QueueUrl": queue("another-queue"), "MessageBody": "x"}, "AccessDenied"),
    ("sqs", "receive_message", {"QueueUrl": "http://127.0.0.1/210987654321/inspect-fleet-abc-work"}, "AccessDenied"),
    ("sqs", "delete_queue", {"QueueUrl": queue("inspect-fleet-abc-work")}, "AccessDenied"),
    ("sqs", "purge_queue", {"QueueUrl": queue("inspect-fleet-abc-work")}, "AccessDenied"),
    ("sqs", "create_queue", {"QueueName": "inspect-fleet-new"}, "AccessDenied"),
    ("sqs", "list_queues", {}, "AccessDenied"),
)
def test_queues(call: Callable[..., str], service: str, operation: str, parameters: dict[str, Any], code: str) -> None:
    assert call(service, operation, **parameters) == code


@table(
    ("ssm", "get_parameter", {"Name": "/inspect-fleet/shared/docker-user"}, "ok"),
    ("ssm", "get_parameter", {"Name": "/inspect-fleet/shared/absent"}, "ParameterNotFound"),
    ("ssm", "get_parameter", {"Name": "/another/parameter"}, "AccessDeniedException"),
    ("ssm", "get_parameter", {"Name": f"{PATH}/absent"}, "AccessDeniedException"),
    ("ssm", "get_parameters", {"Names": ["/inspect-fleet/shared/docker-user"]}, "AccessDeniedException"),
    ("ssm", "get_parameters_by_path", {"Path": "/inspect-fleet/shared"}, "AccessDeniedException"),
    ("ssm", "get_parameter_history", {"Name": "/inspect-fleet/shared/docker-user"}, "AccessDeniedException"),
    ("ssm", "describe_parameters", {}, "AccessDeniedException"),
    ("ssm", "put_parameter", {"Name": f"{PATH}/x", "Value": "v", "Type": "String"}, "AccessDeniedException"),
    ("ssm", "delete_parameter", {"Name": "/inspect-fleet/shared/docker-user"}, "AccessDeniedException"),
    ("ec2", "describe_instances", {}, "UnauthorizedOperation"),
    ("ec2", "create_tags", {"Resources": ["i-0"], "Tags": [{"Key": "a", "Value": "b"}]}, "UnauthorizedOperation"),
    ("iam", "list_roles", {}, "AccessDenied"),
    ("iam", "get_role", {"RoleName": preset.ROLE}, "AccessDenied"),
    ("cloudformation", "describe_stacks", {}, "AccessDenied"),
    ("sts", "get_caller_identity", {}, "ok"),
)
def test_parameters_and_all_else(
    call: Callable[..., str], service: str, operation: str, parameters: dict[str, Any], code: str
) -> None:
    """Under a condition on tags a parameter that is missing is denied, as on AWS; a shared one is named by its ARN."""
    assert call(service, operation, **parameters) == code


def test_an_instance_can_not_launch_or_end_another(call: Callable[..., str], instance: str, host: Host) -> None:
    image = {"ImageId": preset.IMAGE, "MinCount": 1, "MaxCount": 1}
    assert call("ec2", "run_instances", **image) == "UnauthorizedOperation"
    assert call("ec2", "terminate_instances", InstanceIds=[instance]) == "UnauthorizedOperation"


def test_another_policy_on_the_role_does_not_open_other_parameters(
    call: Callable[..., str], instance: str, host: Host, unique: str
) -> None:
    """A policy as broad as AWS's own for Session Manager: the role's explicit denies win."""
    iam, ssm = host.client("iam"), host.client("ssm")
    ssm.put_parameter(Name=f"{PATH}/{unique}", Value="s", Type="SecureString")
    document = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ssm:*","Resource":"*"}]}'
    arn = iam.create_policy(PolicyName=unique, PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=preset.ROLE, PolicyArn=arn)
    try:
        assert call("ssm", "get_parameter", Name="/another/parameter") == "ok"
        assert call("ssm", "get_parameter", Name=f"{PATH}/{unique}") == "AccessDeniedException"
        assert call("ssm", "describe_parameters") == "AccessDeniedException"
    finally:
        iam.detach_role_policy(RoleName=preset.ROLE, PolicyArn=arn)
    assert call("ssm", "get_parameter", Name="/another/parameter") == "AccessDeniedException"


def test_a_person_is_not_bound_by_an_instances_policies(host: Host, world: None) -> None:
    assert host.client("ssm").get_parameter(Name="/another/parameter")["Parameter"]["Value"]
    assert host.client("s3").get_object(Bucket=OTHER_BUCKET, Key="another/key")["Body"].read() == b"x"


def actions(service: str, operation: str, text: str = "", tags: Mapping[str, Mapping[str, str]] | None = None) -> Any:
    call = Call(service, operation, "us-east-1", "key", text, text)
    return list(requests(call, {}, lambda _, name: (tags or {}).get(name, {})))


def test_a_launch_asks_for_what_it_makes_its_tags_and_the_role_it_gives() -> None:
    form = (
        "Action=RunInstances&ImageId=ami-1&TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=a%3Ab"
        "&TagSpecification.1.Tag.1.Value=x%26y&IamInstanceProfile.Name=worker"
    )
    found = {one.resource.split(":", 5)[5]: one for one in actions("ec2", "RunInstances", form)}
    assert found["instance/*"].context == {"aws:tagkeys": ("a:b",), "aws:requesttag/a:b": ("x&y",)}
    assert found["volume/*"].context == {}
    assert found["role/worker"].action == "iam:PassRole"
    assert found["role/worker"].context == {"iam:passedtoservice": ("ec2.amazonaws.com",)}
    assert {"subnet/*", "security-group/*", "network-interface/*", "image/*"} < found.keys()


def test_an_end_asks_for_each_instance_with_its_tags() -> None:
    form = "Action=TerminateInstances&InstanceId.1=i-1&InstanceId.2=i-2"
    one, two = actions("ec2", "TerminateInstances", form, {"i-1": {"inspect-fleet:pool": "p"}})
    assert one.context["aws:resourcetag/inspect-fleet:pool"] == ("p",)
    assert two.context == {}
    assert (one.resource, two.resource) == tuple(
        f"arn:aws:ec2:us-east-1:{preset.ACCOUNT}:instance/{found}" for found in ("i-1", "i-2")
    )


@pytest.mark.parametrize(
    ("requested", "name"),
    [
        ("/a/b", "/a/b"),
        ("/a/b:3", "/a/b"),
        ("plain:label", "plain"),
        ("arn:aws:ssm:us-east-1:123456789012:parameter/a/b:3", "/a/b"),
        ("arn:aws:ssm:us-east-1:123456789012:parameter/plain", "plain"),
    ],
)
def test_the_tags_are_those_of_the_parameter_however_it_is_named(requested: str, name: str) -> None:
    assert parameter_name(requested) == name


def test_a_call_is_judged_in_a_moment(host: Host, instance: str) -> None:
    """A hundred calls of an instance take no longer than a person's, within the noise of a busy machine."""
    body = {**S3, "Key": "inspect-fleet/evals/e/jobs/speed.eval", "Body": b"x"}

    clients = {"instance": host.as_instance("s3", instance), "person": host.client("s3")}
    took: dict[str, list[float]] = {who: [] for who in clients}
    for _ in range(60):  # by turns: a busy moment is both's
        for who, client in clients.items():
            began = time.perf_counter()
            client.put_object(**body)
            took[who].append(time.perf_counter() - began)
    quick = {who: sorted(each)[10] for who, each in took.items()}
    assert quick["instance"] < 2 * quick["person"] + 0.005
