"""Scripted faults, through real clients of the real host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from fleet.local import preset
from fleet.local.faults import BYSTANDER, ControlRefused, Fault, FaultKit
from fleet.local.timing import Timing
from tests.fleet.local.conftest import Host, launch_parameters, wait_until


@pytest.fixture
def once(host: Host) -> Callable[[str], Any]:
    """Clients that call once: what the emulator answers is what the test sees."""

    def client(service: str, key: str = "x") -> Any:
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=host.aws,
            region_name=preset.REGION,
            aws_access_key_id=key,
            aws_secret_access_key="x",
            config=Config(retries={"total_max_attempts": 1}),
        )

    return client


def refusal(call: Callable[..., Any], **parameters: Any) -> tuple[str, int]:
    """Code and status of a refused call."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    response: dict[str, Any] = dict(caught.value.response)
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_fault_strikes_as_often_as_it_says(once: Callable[[str], Any], kit: FaultKit) -> None:
    """With code and status of its own; then the call goes through again."""
    sts = once("sts")
    kit.fault("GetCallerIdentity", times=2, code="Throttling", status=503)
    assert [refusal(sts.get_caller_identity) for _ in range(2)] == [("Throttling", 503)] * 2
    assert sts.get_caller_identity()["Account"] == preset.ACCOUNT
    assert kit.hits() == [2]
    assert kit.calls("GetCallerIdentity") == 3


def test_who_only_looks_on_is_neither_struck_nor_counted(once: Callable[..., Any], kit: FaultKit) -> None:
    kit.fault("GetCallerIdentity", code="Throttling", status=503)
    once("sts", BYSTANDER).get_caller_identity()
    assert (kit.hits(), kit.calls("GetCallerIdentity")) == ([0], 0)


def test_a_fault_looks_into_the_request(once: Callable[[str], Any], kit: FaultKit, launch: Callable[..., str]) -> None:
    """No capacity for one type, as EC2 says it (a 500), and room for the next."""
    kit.fault(
        "RunInstances", match="InstanceType=c7i.4xlarge", times=None, code="InsufficientInstanceCapacity", status=500
    )
    assert refusal(once("ec2").run_instances, **launch_parameters()) == ("InsufficientInstanceCapacity", 500)
    assert launch(InstanceType="c7i.2xlarge")


def test_a_lost_answer_has_its_effect(once: Callable[[str], Any], ec2: Any, kit: FaultKit, unique: str) -> None:
    """The instance is there though the launch failed: the client token finds it."""
    kit.fault("RunInstances", lost=True)
    assert refusal(once("ec2").run_instances, **launch_parameters(ClientToken=unique)) == ("InternalError", 500)
    again = ec2.run_instances(**launch_parameters(ClientToken=unique))
    found = ec2.describe_instances(Filters=[{"Name": "client-token", "Values": [unique]}])["Reservations"]
    instances = [i["InstanceId"] for one in found for i in one["Instances"]]
    assert instances == [again["Instances"][0]["InstanceId"]]
    ec2.terminate_instances(InstanceIds=instances)


def test_a_lost_put_is_there(host: Host, once: Callable[[str], Any], kit: FaultKit, unique: str) -> None:
    """S3 too, whose body the fault never reads."""
    kit.fault("PutObject", match=unique, lost=True, status=503, code="SlowDown")
    put = {"Bucket": preset.BUCKET, "Key": unique, "Body": b"content"}
    assert refusal(once("s3").put_object, **put) == ("SlowDown", 503)
    assert host.client("s3").get_object(Bucket=preset.BUCKET, Key=unique)["Body"].read() == b"content"


def test_a_refused_put_of_a_large_object_is_read_to_its_end(once: Callable[[str], Any], kit: FaultKit) -> None:
    """The client hears the refusal, not a connection that broke while it was sending."""
    kit.fault("PutObject", code="SlowDown", status=503)
    put = {"Bucket": preset.BUCKET, "Key": "large", "Body": bytes(12 * 2**20)}
    assert refusal(once("s3").put_object, **put) == ("SlowDown", 503)


@pytest.mark.parametrize(
    ("service", "operation", "method", "parameters"),
    [
        ("ssm", "GetParameter", "get_parameter", {"Name": preset.IMAGE_PARAMETER}),
        ("sqs", "ListQueues", "list_queues", {}),
        ("s3", "ListObjectsV2", "list_objects_v2", {"Bucket": preset.BUCKET}),
        ("iam", "GetRole", "get_role", {"RoleName": preset.ROLE}),
        ("ec2", "DescribeImages", "describe_images", {}),
    ],
)
def test_every_service_can_be_refused(
    once: Callable[[str], Any], kit: FaultKit, service: str, operation: str, method: str, parameters: dict[str, Any]
) -> None:
    """In its own protocol, so that a client reads the very code that was scripted."""
    kit.fault(operation, code="ScriptedCode", status=400)
    assert refusal(getattr(once(service), method), **parameters) == ("ScriptedCode", 400)


def test_a_fault_may_only_delay(once: Callable[[str], Any], kit: FaultKit) -> None:
    """Without a code the call is answered, later."""
    kit.fault("GetCallerIdentity", delay=0.3)
    begun = time.monotonic()
    assert once("sts").get_caller_identity()
    assert time.monotonic() - begun >= 0.3


def test_a_fault_may_be_one_instances(host: Host, kit: FaultKit, launch: Callable[..., str]) -> None:
    """Other callers aren't struck."""
    first, second = launch(), launch()
    kit.fault("GetCallerIdentity", instance=first, code="AccessDenied", status=403, times=None)
    assert refusal(host.as_instance("sts", first).get_caller_identity) == ("AccessDenied", 403)
    assert host.as_instance("sts", second).get_caller_identity()["Arn"].endswith(second)


def test_a_held_back_parameter_is_a_delayed_write(host: Host, ssm: Any, kit: FaultKit, unique: str) -> None:
    """Other calls go on meanwhile: a delay holds no lock."""
    kit.fault("PutParameter", delay=2.0)
    from threading import Thread

    other = host.client("ssm")
    put = Thread(target=ssm.put_parameter, kwargs={"Name": f"/{unique}", "Value": "v", "Type": "String"})
    put.start()
    wait_until(lambda: kit.hits() == [1])  # it is being held back
    with pytest.raises(other.exceptions.ParameterNotFound):
        other.get_parameter(Name=f"/{unique}")
    put.join()
    assert wait_until(lambda: other.get_parameter(Name=f"/{unique}"))


@pytest.mark.parametrize(
    ("fields", "why"), [({"tmies": 1}, "tmies"), ({"match": "("}, "missing"), ({"operation": 5}, "operation")]
)
def test_a_mistyped_fault_is_refused(kit: FaultKit, fields: dict[str, Any], why: str) -> None:
    """A fault that can't strike as meant would let a test pass for the wrong reason."""
    with pytest.raises(ControlRefused, match=why):
        kit.fault(**{"operation": "RunInstances", **fields})


def test_an_unknown_control_is_refused(kit: FaultKit) -> None:
    """With a 404 that names it."""
    with pytest.raises(ControlRefused, match="POST nonsense"):
        kit._ask("POST", "nonsense", {})


@pytest.mark.parametrize("change", [{"pendign": 1}, {"pending": -1}, {"pending": "soon"}, {"pending": True}])
def test_a_mistyped_timing_is_refused(change: dict[str, Any]) -> None:
    """Only known fields, only seconds."""
    with pytest.raises(ValueError, match="pend"):
        Timing().changed(change)


def test_a_lost_answer_is_a_server_error() -> None:
    """A client must take it for a failure that may have had its effect."""
    assert Fault("X", lost=True).answer() == ("InternalError", 500)
    assert Fault("X", lost=True, code="C", status=400).answer() == ("C", 500)
    assert Fault("X", delay=1).answer() is None
