"""What a launch asks for, argument by argument; and how instances are launched, tagged, described and ended on the emulator."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import anyio
import pytest

from fleet.aws import instances
from fleet.aws.capacity import Candidate, NoCapacity
from fleet.aws.failures import Denied
from fleet.aws.fleets import Launches
from fleet.aws.hunt import Hunt, Member
from fleet.aws.instances import LAUNCH_TAG, Instance, Instances, LaunchOrder, TerminationRefused, launch_arguments
from fleet.aws.search import Ask
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import REGION, fail
from tests.fleet.aws.ec2 import Clock

ORDER = LaunchOrder(
    attempt="group-1",
    image="ami-1",
    root_device="/dev/sda1",
    user_data="#!/bin/bash\n",
    tags={"inspect-fleet:pool": "p"},
    security_groups=("sg-1", "default"),
    instance_profile="inspect-fleet-worker",
    volume_gb=40,
)
ON_DEMAND = Candidate("c7i.large", "subnet-1", "on-demand")


def test_the_launch_arguments_of_an_on_demand_candidate() -> None:
    tags = [{"Key": "inspect-fleet:pool", "Value": "p"}, {"Key": LAUNCH_TAG, "Value": "group-1"}]
    assert launch_arguments(ORDER, ON_DEMAND, count=7, token="t") == {
        "ImageId": "ami-1",
        "InstanceType": "c7i.large",
        "MinCount": 1,
        "MaxCount": 7,
        "ClientToken": "t",
        "UserData": "#!/bin/bash\n",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {"VolumeType": "gp3", "VolumeSize": 40, "Encrypted": True, "DeleteOnTermination": True},
            }
        ],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume", "network-interface")
        ],
        "SubnetId": "subnet-1",
        "SecurityGroupIds": ["sg-1"],
        "SecurityGroups": ["default"],
        "IamInstanceProfile": {"Name": "inspect-fleet-worker"},
    }


def test_a_spot_instance_is_asked_for_once_and_ends_when_it_is_taken_back() -> None:
    arguments = launch_arguments(
        replace(ORDER, security_groups=(), instance_profile=None), Candidate("a", None, "spot")
    )
    assert arguments["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }
    # EC2 takes tags of a spot request only where there is one.
    assert [each["ResourceType"] for each in arguments["TagSpecifications"]][3:] == ["spot-instances-request"]
    assert not {"SubnetId", "SecurityGroupIds", "SecurityGroups", "IamInstanceProfile"} & arguments.keys()


def test_a_profile_may_be_named_by_its_arn() -> None:
    order = replace(ORDER, instance_profile="arn:aws:iam::123456789012:instance-profile/x")
    assert launch_arguments(order, ON_DEMAND)["IamInstanceProfile"] == {"Arn": order.instance_profile}


# On the emulator


def run(ec2: Instances, order: LaunchOrder, place: Candidate) -> Instance:
    """One instance."""
    (instance,) = ec2.ask(order, Ask((place,), 1, uuid4().hex)).instances
    return instance


@pytest.fixture
def order(aws: Aws, unique: str) -> LaunchOrder:
    image = aws.ec2.describe_images(Filters=[{"Name": "name", "Values": ["amzn2-ami-hvm*"]}])["Images"][0]
    return replace(
        ORDER,
        attempt=unique,
        image=image["ImageId"],
        root_device=Instances(aws).root_device(image["ImageId"]),
        tags={"run": unique},
        security_groups=(),
        instance_profile=None,
    )


def test_an_instance_is_launched_described_and_terminated(aws: Aws, order: LaunchOrder, unique: str) -> None:
    ec2 = Instances(aws)
    launched = run(ec2, order, Candidate("c5.large", None, "on-demand"))
    ec2.tag(launched.id, {"Name": "w"})
    assert launched.identifier == f"{REGION}::{launched.id}"
    assert [each.id for each in ec2.find({"run": unique, LAUNCH_TAG: unique})] == [launched.id]
    seen = ec2.get(launched.id)
    assert seen is not None
    assert (seen.state, seen.tags["Name"], seen.market, seen.leaving) == ("running", "w", "on-demand", False)
    assert ec2.terminate([launched.id]) == frozenset()
    gone = ec2.find({"run": unique})[0]
    assert gone.leaving
    assert gone.reason_code == "Client.UserInitiatedShutdown"


def test_volume_and_metadata_are_as_ordered(aws: Aws, order: LaunchOrder) -> None:
    launched = run(Instances(aws), order, Candidate("c5.large", None, "spot"))
    found = aws.ec2.describe_instances(InstanceIds=[launched.id])["Reservations"][0]["Instances"][0]
    assert found["InstanceLifecycle"] == "spot"
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    volume = aws.ec2.describe_volumes(VolumeIds=[found["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])["Volumes"][0]
    assert (volume["Size"], volume["Encrypted"], volume["VolumeType"]) == (40, True, "gp3")


def test_all_pages_of_instances_are_read(aws: Aws, order: LaunchOrder, unique: str) -> None:
    ec2 = Instances(aws)
    ids = {run(ec2, order, Candidate("t3.micro", None, "on-demand")).id for _ in range(7)}
    paginate = aws.ec2.get_paginator("describe_instances").paginate
    pages = list(paginate(Filters=[{"Name": "tag:run", "Values": [unique]}], PaginationConfig={"PageSize": 5}))
    assert len(pages) == 2
    assert {each.id for each in ec2.find({"run": unique})} == ids


def test_unknown_instances_are_named_and_the_known_ones_still_go(aws: Aws, order: LaunchOrder) -> None:
    ec2 = Instances(aws)
    known = run(ec2, order, Candidate("t3.micro", None, "on-demand")).id
    unknown = "i-0123456789abcdef0"
    assert ec2.terminate([unknown, known]) == {unknown}
    assert (seen := ec2.get(known)) is not None
    assert seen.leaving
    assert ec2.get(unknown) is None


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "OperationNotPermitted"])
@pytest.mark.fault("launch-error")
def test_an_instance_that_may_not_be_ended_is_named_and_the_others_go(
    aws: Aws, order: LaunchOrder, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(
        instances, "TERMINATE_AT_ONCE", 2
    )  # so that it stands before others in a call, and before a call
    ec2 = Instances(aws)
    kept, *others = (run(ec2, order, Candidate("t3.micro", None, "on-demand")).id for _ in range(3))
    unknown = "i-0123456789abcdef0"
    fail(aws.ec2, "TerminateInstances", code, "not this one", about=kept)
    with pytest.raises(TerminationRefused) as caught:
        ec2.terminate([kept, others[0], unknown, others[1]])
    refused = caught.value
    assert (refused.code, refused.codes) == (code, {kept: code})
    assert refused.unknown == {unknown}
    assert str(refused) == f"ec2 TerminateInstances of {kept} in {REGION} failed: {code}: not this one"
    assert [seen.leaving for each in others if (seen := ec2.get(each))] == [True, True]
    assert (seen := ec2.get(kept)) is not None
    assert not seen.leaving


def test_the_refusal_of_one_instance_that_is_asked_about_alone_keeps_its_class(aws: Aws) -> None:
    fail(aws.ec2, "TerminateInstances", "UnauthorizedOperation")
    with pytest.raises(Denied, match="i-1 in us-east-1"):
        Instances(aws).terminate(["i-1"])


@pytest.mark.fault("no-capacity")
def test_a_launch_asks_once_even_where_capacity_is_answered_as_a_server_error(aws: Aws, order: LaunchOrder) -> None:
    """EC2 sends InsufficientInstanceCapacity as HTTP 500, which botocore would retry by itself."""
    sent = []
    aws.ec2_once.meta.events.register("before-call.ec2.RunInstances", lambda **_: sent.append(1))
    fail(aws.ec2_once, "RunInstances", "InsufficientInstanceCapacity", status=500)
    member = Member("attempt", {})
    places = [Candidate("a", None, "spot"), Candidate("a", None, "on-demand")]
    anyio.run(Hunt(Launches(aws), order, places, [member]).run)
    assert isinstance(member.error, NoCapacity)
    assert len(sent) == 2


@pytest.mark.fault("launch-error")
def test_a_launch_whose_answer_cannot_be_read_leaves_no_instance_that_nobody_has(aws: Aws, order: LaunchOrder) -> None:
    """EC2 did launch, and something on the way put a page of its own in place of the answer."""
    pages = iter([b"<html><br></html>"])

    def replace_answer(response_dict: dict[str, object], **_: object) -> None:
        response_dict["body"] = next(pages, response_dict["body"])

    aws.ec2_once.meta.events.register("before-parse.ec2.RunInstances", replace_answer)
    member, clock = Member("attempt", {}), Clock()
    places = [Candidate("t3.micro", None, "on-demand")]
    anyio.run(Hunt(Launches(aws), order, places, [member], clock=clock, sleep=clock.sleep).run)
    assert member.instance is not None
    found = Instances(aws).find({LAUNCH_TAG: order.attempt})
    assert len(found) == 2  # plain moto knows no tokens
    assert [each.id for each in found if not each.leaving] == [member.instance.id]
