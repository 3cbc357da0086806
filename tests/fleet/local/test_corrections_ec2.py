"""One contract test for each rule of EC2 that moto doesn't keep; the docstring says AWS's rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.fleet.local.conftest import PATIENCE, Host, describe, launch_parameters, state_of, wait_until


def code_of(call: Callable[..., Any], **parameters: Any) -> str:
    """The error code with which a call is refused."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


def ids(answer: dict[str, Any]) -> list[str]:
    return [instance["InstanceId"] for instance in answer["Instances"]]


@pytest.fixture(autouse=True)
def _nothing_left(ec2: Any) -> Any:
    yield
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    )
    left = [i["InstanceId"] for page in pages for one in page["Reservations"] for i in one["Instances"]]
    if left:
        ec2.terminate_instances(InstanceIds=left)


def test_as_many_instances_start_as_there_is_room_for(ec2: Any) -> None:
    """RunInstances launches MaxCount instances where it can, and never fewer than MinCount."""
    answer = ec2.run_instances(**launch_parameters(MinCount=1, MaxCount=3))
    assert len(answer["Instances"]) == 3


def test_more_at_least_than_at_most_is_refused(ec2: Any) -> None:
    """MinCount above MaxCount: InvalidParameterCombination."""
    assert code_of(ec2.run_instances, **launch_parameters(MinCount=2, MaxCount=1)) == "InvalidParameterCombination"


def test_each_instance_of_a_launch_has_the_profile(ec2: Any, host: Host) -> None:
    """The instance profile of a request is that of every instance it launches."""
    for instance in ids(ec2.run_instances(**launch_parameters(MinCount=2, MaxCount=2))):
        assert describe(ec2, instance)["IamInstanceProfile"]["Arn"].endswith(f"/{preset.PROFILE}")
        assert host.imds(instance, "meta-data/iam/security-credentials/") == preset.ROLE


def test_a_client_token_used_again_launches_nothing(ec2: Any, unique: str) -> None:
    """A repeated request with its client token gives back the instances of the first, whatever their state is now."""
    first = ec2.run_instances(**launch_parameters(ClientToken=unique))
    again = ec2.run_instances(**launch_parameters(ClientToken=unique))
    assert ids(first) == ids(again)
    ec2.terminate_instances(InstanceIds=ids(first))
    wait_until(lambda: state_of(ec2, ids(first)[0]) == "terminated")
    late = ec2.run_instances(**launch_parameters(ClientToken=unique))
    assert ids(late) == ids(first)
    assert late["Instances"][0]["State"]["Name"] == "terminated"


def test_a_client_token_with_other_parameters_is_a_mismatch(ec2: Any, unique: str) -> None:
    """The same token with any other parameter: IdempotentParameterMismatch, and nothing is launched."""
    ec2.run_instances(**launch_parameters(ClientToken=unique))
    other = launch_parameters(ClientToken=unique, InstanceType="c7i.2xlarge")
    assert code_of(ec2.run_instances, **other) == "IdempotentParameterMismatch"


def test_a_client_token_has_at_most_64_characters(ec2: Any) -> None:
    """ClientToken: up to 64 characters, else InvalidParameterValue."""
    assert code_of(ec2.run_instances, **launch_parameters(ClientToken="t" * 65)) == "InvalidParameterValue"


def test_instances_are_found_by_their_client_token(ec2: Any, unique: str) -> None:
    """DescribeInstances has the filter `client-token`."""
    launched = ids(ec2.run_instances(**launch_parameters(ClientToken=unique)))
    found = ec2.describe_instances(Filters=[{"Name": "client-token", "Values": [unique]}])["Reservations"]
    assert [i["InstanceId"] for one in found for i in one["Instances"]] == launched


def test_spot_instances_are_found_by_their_market(ec2: Any) -> None:
    """The filter `instance-lifecycle` gives spot instances, and an on-demand one has no lifecycle at all."""
    spot = ids(ec2.run_instances(**launch_parameters(InstanceMarketOptions={"MarketType": "spot"})))
    plain = ids(ec2.run_instances(**launch_parameters()))
    found = ec2.describe_instances(Filters=[{"Name": "instance-lifecycle", "Values": ["spot"]}])["Reservations"]
    assert spot[0] in {i["InstanceId"] for one in found for i in one["Instances"]}
    assert describe(ec2, spot[0])["InstanceLifecycle"] == "spot"
    assert "InstanceLifecycle" not in describe(ec2, plain[0])


def test_an_unknown_filter_is_the_callers_mistake(ec2: Any, launch: Callable[..., str]) -> None:
    """A filter that doesn't exist: InvalidParameterValue, not a server error that would be tried again."""
    launch()
    filters = [{"Name": "no-such-filter", "Values": ["x"]}]
    assert code_of(ec2.describe_instances, Filters=filters) == "InvalidParameterValue"


def test_an_instance_is_pending_before_it_runs(ec2: Any, kit: FaultKit, launch: Callable[..., str]) -> None:
    """RunInstances answers with pending instances; running comes later."""
    kit.timing(pending=PATIENCE)
    answer = ec2.run_instances(**launch_parameters())
    assert answer["Instances"][0]["State"] == {"Code": 0, "Name": "pending"}
    assert state_of(ec2, ids(answer)[0]) == "pending"
    kit.timing(pending=0.05)
    instance = launch()
    wait_until(lambda: state_of(ec2, instance) == "running")
    ec2.terminate_instances(InstanceIds=ids(answer))


@pytest.mark.parametrize(("size", "accepted"), [(16_384, True), (16_385, False)])
def test_user_data_has_at_most_16_kb_before_encoding(ec2: Any, size: int, accepted: bool) -> None:
    """User data above 16,384 bytes, before base64: InvalidParameterValue."""
    parameters = launch_parameters(UserData="x" * size)
    if accepted:
        assert ids(ec2.run_instances(**parameters))
    else:
        assert code_of(ec2.run_instances, **parameters) == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("ami-0f1ee700000000fff", "InvalidAMIID.NotFound"),
        ("ami-worker", "InvalidAMIID.Malformed"),
        (preset.IMAGE_PENDING, "InvalidAMIID.Unavailable"),
        (preset.IMAGE_FAILED, "InvalidAMIID.Unavailable"),
        (preset.IMAGE_ARM64, "InvalidParameterValue"),
    ],
)
def test_only_an_available_image_for_the_types_processor_starts(ec2: Any, image: str, code: str) -> None:
    """Unknown, malformed, unfinished or failed images, and those for another architecture, are refused at the launch."""
    assert code_of(ec2.run_instances, **launch_parameters(ImageId=image)) == code


def test_an_image_is_of_its_region(host: Host) -> None:
    """An AMI exists in one region only."""
    import boto3

    elsewhere = boto3.client(
        "ec2", endpoint_url=host.aws, region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="x"
    )
    assert code_of(elsewhere.describe_images, ImageIds=[preset.IMAGE]) == "InvalidAMIID.NotFound"


def test_a_failed_image_says_why(ec2: Any) -> None:
    """DescribeImages gives the state and, for a failed image, its StateReason."""
    image = ec2.describe_images(ImageIds=[preset.IMAGE_FAILED])["Images"][0]
    assert image["State"] == "failed"
    assert image["StateReason"]["Code"] == "Client.InternalError"


def test_an_unknown_instance_type_is_refused(ec2: Any) -> None:
    """A type that doesn't exist: InvalidParameterValue, nothing launched."""
    code = code_of(ec2.run_instances, **launch_parameters(InstanceType="c99.huge"))
    assert code == "InvalidParameterValue"


def test_an_instance_is_shutting_down_until_its_last_process_is_gone(
    ec2: Any, host: Host, kit: FaultKit, launch: Callable[..., str]
) -> None:
    """TerminateInstances: shutting-down while the machine goes down, terminated afterwards."""
    kit.timing(grace=PATIENCE)
    instance = launch("trap 'until [ -e go ]; do sleep 0.05; done; exit' TERM; touch up; while :; do sleep 0.05; done")
    wait_until((host.home_of(instance) / "up").exists)
    ec2.terminate_instances(InstanceIds=[instance])
    assert state_of(ec2, instance) == "shutting-down"
    (host.home_of(instance) / "go").touch()
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    assert host.running_of(instance) == set()
    assert describe(ec2, instance)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"


def test_terminating_twice_is_no_error(ec2: Any, launch: Callable[..., str]) -> None:
    """TerminateInstances is idempotent."""
    instance = launch()
    for _ in range(2):
        ec2.terminate_instances(InstanceIds=[instance])
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    ec2.terminate_instances(InstanceIds=[instance])


def test_a_dry_run_launches_nothing(ec2: Any) -> None:
    """DryRun answers DryRunOperation when the launch would go through."""
    assert code_of(ec2.run_instances, **launch_parameters(DryRun=True)) == "DryRunOperation"


def test_a_service_that_is_not_emulated_is_refused_at_once(host: Host) -> None:
    """Not AWS's rule but ours: an SDK tries a 500 again for seconds, and the product must go on without prices."""
    assert code_of(host.client("pricing").get_products, ServiceCode="AmazonEC2") == "AccessDeniedException"
