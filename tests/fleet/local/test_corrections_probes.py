"""What a preflight asks is answered as AWS answers it, and makes nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.fleet.local.conftest import Host, launch_parameters


def code_of(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    "operation", ["describe_images", "describe_instance_types", "describe_instance_type_offerings", "describe_subnets"]
)
def test_a_dry_run_of_a_look_says_that_it_would_be_answered(ec2: Any, operation: str) -> None:
    assert code_of(getattr(ec2, operation), DryRun=True) == "DryRunOperation"


def test_a_dry_run_launches_nothing_and_uses_no_client_token(ec2: Any, unique: str) -> None:
    before = len(ec2.describe_instances()["Reservations"])
    parameters = launch_parameters("true", ClientToken=unique)
    assert code_of(ec2.run_instances, **parameters, DryRun=True) == "DryRunOperation"
    assert len(ec2.describe_instances()["Reservations"]) == before


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"ImageId": preset.IMAGE_FAILED}, "InvalidAMIID.Unavailable"),
        ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
    ],
)
def test_a_dry_run_looks_at_the_parameters(ec2: Any, more: dict[str, Any], code: str) -> None:
    assert code_of(ec2.run_instances, **launch_parameters(**more), DryRun=True) == code


def test_a_value_that_does_not_fit_its_pattern_is_refused(ssm: Any, unique: str) -> None:
    put = {"Name": f"/{unique}", "Type": "String", "AllowedPattern": "^[0-9]+$"}
    assert code_of(ssm.put_parameter, **put, Value="a") == "ParameterPatternMismatchException"
    assert code_of(ssm.get_parameter, Name=f"/{unique}") == "ParameterNotFound"
    ssm.put_parameter(**put, Value="1")


def test_an_object_whose_digest_is_another_s_is_refused(host: Host, unique: str) -> None:
    s3 = host.client("s3")

    def digest(data: bytes) -> str:
        return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()

    put = {"Bucket": preset.BUCKET, "Key": unique}
    for body in (b"", b"content"):
        assert code_of(s3.put_object, **put, Body=body, ContentMD5=digest(b"another")) == "BadDigest"
    assert code_of(s3.get_object, **put) == "NoSuchKey"
    s3.put_object(**put, Body=b"content", ContentMD5=digest(b"content"))
    assert s3.get_object(**put)["Body"].read() == b"content"


def test_a_queue_whose_dead_letter_queue_is_absent_is_not_made(sqs: Any, unique: str) -> None:
    arn = f"arn:aws:sqs:{preset.REGION}:{preset.ACCOUNT}:{unique}-absent"
    redrive = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 1}}'
    code = code_of(sqs.create_queue, QueueName=unique, Attributes={"RedrivePolicy": redrive})
    assert code in ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "InvalidParameterValue")
    assert sqs.list_queues(QueueNamePrefix=unique).get("QueueUrls", []) == []


def test_a_fault_leaves_dry_runs_alone_unless_it_speaks_of_them(ec2: Any, kit: FaultKit) -> None:
    """Want of capacity is found by a launch, and a missing permission by its dry run."""
    kit.fault("RunInstances", code="InsufficientInstanceCapacity")
    before = kit.calls("RunInstances")
    assert code_of(ec2.run_instances, **launch_parameters(), DryRun=True) == "DryRunOperation"
    assert kit.hits() == [0]
    assert kit.calls("RunInstances") == before
    kit.fault("RunInstances", match="DryRun=true", code="UnauthorizedOperation", status=403)
    assert code_of(ec2.run_instances, **launch_parameters(), DryRun=True) == "UnauthorizedOperation"
    assert kit.hits() == [0, 1]
