"""What `fleet setup` gives a control plane, against an emulated account."""

from __future__ import annotations

import hashlib

import boto3
import pytest

from fleet.account.stack import CONTROL_PLANE
from fleet.aws.objects import bucket_and_key
from fleet.aws.session import Aws
from fleet.cli.control_plane import give_order
from fleet.pool.code import code_archive
from fleet.services.control_plane import AUTH_PARAMETER, ORDER_PARAMETER, TAG, read_order
from tests.fleet.aws.conftest import REGION, aws, aws_environment, boto, moto_endpoint

__all__ = ["aws", "aws_environment", "boto", "moto_endpoint"]

VOLUME = "vol-0123456789abcdef0"


@pytest.fixture
def outputs(aws: Aws) -> dict[str, str]:
    aws.s3.create_bucket(Bucket="plane")
    return {"Bucket": "plane", "Prefix": "inspect-fleet", CONTROL_PLANE: VOLUME}


def auth_of(aws: Aws) -> str:
    return aws.ssm.get_parameter(Name=AUTH_PARAMETER, WithDecryption=True)["Parameter"]["Value"]


def test_the_order_names_what_was_shipped_and_is_given_once(aws: Aws, outputs: dict[str, str]) -> None:
    """Done again nothing is changed, above all not the auth string that a server and its workers use; what is new is told."""
    (note,) = give_order(aws, outputs, {"bucket": "plane"})
    assert f"`fleet connect --region {REGION}` leads to it" in note
    order = read_order(aws)
    assert (order.volume, order.account["api_auth_parameter"]) == (VOLUME, AUTH_PARAMETER)
    bucket, key = bucket_and_key(order.code)
    shipped = aws.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    assert hashlib.sha256(shipped).hexdigest() == order.code_sha256 == hashlib.sha256(code_archive()).hexdigest()

    auth = auth_of(aws)
    assert auth.startswith("fleet:")
    assert len(auth) > 40
    parameter = aws.ssm.get_parameter(Name=AUTH_PARAMETER)["Parameter"]
    assert parameter["Type"] == "SecureString"
    assert auth not in aws.ssm.get_parameter(Name=ORDER_PARAMETER)["Parameter"]["Value"]

    assert give_order(aws, outputs, {"bucket": "plane"}) == []
    assert auth_of(aws) == auth

    ec2 = boto3.client("ec2", region_name=REGION)
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": TAG, "Value": "inspect-fleet"}]}]
    launched = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=tags)  # type: ignore[arg-type]
    instance = launched["Instances"][0]["InstanceId"]
    (note,) = give_order(aws, outputs, {"bucket": "plane", "subnets": ["subnet-1"]})
    assert f"`aws ec2 terminate-instances --instance-ids {instance} --region {REGION}`" in note
    assert read_order(aws).account["subnets"] == ["subnet-1"]
    assert auth_of(aws) == auth
