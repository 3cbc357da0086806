"""Spot fleets: what is asked for, and that the local cloud's instances of a fleet are like any other."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from fleet.aws.capacity import Candidate, NoCapacity, Refusal
from fleet.aws.failures import AwsRefused
from fleet.aws.fleets import STRATEGY, TEMPLATE_PREFIX, Launches, fleet_arguments, read, template_arguments
from fleet.aws.hunt import Hunt, Member, Pace, TagsRefused
from fleet.aws.instances import LAUNCH_TAG, Instances, LaunchOrder
from fleet.aws.search import Ask, Search
from fleet.aws.session import Aws
from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.fleet.aws.ec2 import ORDER, Clock
from tests.fleet.local.conftest import Host, kit

__all__ = ["kit"]

SPOT = (Candidate("a", "s1", "spot"), Candidate("b", None, "spot"))
NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def test_a_template_holds_the_whole_shape_and_goes_by_the_pool_s_tag() -> None:
    found = template_arguments(ORDER, "name")
    data = found["LaunchTemplateData"]
    assert base64.b64decode(data["UserData"]).decode() == ORDER.user_data
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert data["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert not {"InstanceType", "SubnetId", "InstanceMarketOptions", "MinCount", "ClientToken"} & data.keys()
    assert found["TagSpecifications"][0]["Tags"] == [{"Key": "inspect-fleet:pool", "Value": "p"}]


def test_a_fleet_leaves_the_choice_of_place_to_ec2_and_is_over_at_once() -> None:
    found = fleet_arguments(ORDER, Ask(SPOT, 5, "t"), "name")
    assert (found["Type"], found["ClientToken"]) == ("instant", "t")
    assert found["SpotOptions"]["AllocationStrategy"] == STRATEGY
    assert found["TargetCapacitySpecification"] == {"TotalTargetCapacity": 5, "DefaultTargetCapacityType": "spot"}
    (config,) = found["LaunchTemplateConfigs"]
    assert config["Overrides"] == [{"InstanceType": "a", "SubnetId": "s1"}, {"InstanceType": "b"}]


@pytest.mark.parametrize("code", ["InvalidFleetConfiguration", "MaxFleetCountExceeded", "UnauthorizedOperation"])
def test_where_a_fleet_is_unfit_for_one_place_each_is_asked_for_by_itself(code: str) -> None:
    how: Any = {"region": "us-east-1", "until": 60.0, "seconds": 60.0, "together": True}
    for refusals in (
        [Refusal(SPOT[0], code, "")],
        [Refusal(SPOT[0], code, ""), Refusal(SPOT[1], "UnfulfillableCapacity", "")],
    ):
        search = Search("group", SPOT, **how)
        assert search.answered(search.next(2), 0, refusals) == 0.0
        assert search.next(2).places == SPOT[:1]
    whole = Search("group", SPOT, **how)
    assert whole.refused(whole.next(2), code, "", now=0.0, draw=1.0) == 0.0
    assert whole.next(2).places == SPOT[:1]


def test_errors_of_overrides_are_refusals_of_their_places() -> None:
    answer: Any = {
        "Instances": [{"InstanceIds": ["i-1", "i-2"], "InstanceType": "b", "Lifecycle": "spot"}],
        "Errors": [
            {
                "LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": "a", "SubnetId": "s1"}},
                "ErrorCode": "InsufficientInstanceCapacity",
                "ErrorMessage": "There is none. Encoded authorization failure message: Zm9v",
            },
            {"LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": "b"}}, "ErrorCode": "VcpuLimitExceeded"},
            {"ErrorCode": "UnfulfillableCapacity"},
        ],
    }
    found = read(answer, Ask(SPOT, 3, "t"), "r", NOW)
    assert [(each.id, each.instance_type, each.market) for each in found.instances] == [
        ("i-1", "b", "spot"),
        ("i-2", "b", "spot"),
    ]
    assert found.refusals == (
        Refusal(SPOT[0], "InsufficientInstanceCapacity", "There is none"),
        Refusal(SPOT[1], "VcpuLimitExceeded", ""),
        Refusal(SPOT[0], "UnfulfillableCapacity", "", named=False),
    )


def test_an_error_that_names_no_place_refuses_none_of_them_for_good() -> None:
    how: Any = {"region": "us-east-1", "until": 60.0, "seconds": 60.0, "together": True}
    search = Search("group", SPOT, **how)
    answer: Any = {"Errors": [{"ErrorCode": "UnfulfillableCapacity"}]}
    search.answered(search.next(2), 0, read(answer, Ask(SPOT, 2, "t"), "r", NOW).refusals)
    assert search.next(2).places == SPOT[:1]


# On the local cloud

KINDS = ("c7i.large", "m7i.large")


class Cloud:
    """The local cloud's EC2, with one order."""

    def __init__(self, host: Host, unique: str) -> None:
        import boto3

        self.aws = Aws(preset.REGION, session=cast("Any", Session(host, boto3.Session(region_name=preset.REGION))))
        self.ec2 = Instances(self.aws)
        zones = self.aws.ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
        self.subnets = sorted(zone["SubnetId"] for zone in zones)[:2]
        self.order = LaunchOrder(
            attempt=unique,
            image=preset.IMAGE,
            root_device=self.ec2.root_device(preset.IMAGE),
            user_data="#!/bin/bash\nsleep 60\n",
            tags={"inspect-fleet:pool": unique},
            instance_profile=preset.PROFILE,
            volume_gb=40,
        )

    def places(self, *markets: Any) -> list[Candidate]:
        return [Candidate(kind, subnet, market) for market in markets for kind in KINDS for subnet in self.subnets]

    def hunt(self, count: int, places: list[Candidate]) -> list[Member]:
        members = [Member(f"attempt-{number}", {"flow-run": f"run-{number}"}) for number in range(count)]
        clock = Clock()
        how: Any = {"clock": clock, "sleep": clock.sleep, "draw": lambda: 0.0}
        anyio.run(Hunt(Launches(self.aws), self.order, places, members, **how).run)
        return members

    def described(self) -> list[dict[str, Any]]:
        filters: Any = [{"Name": f"tag:{LAUNCH_TAG}", "Values": [self.order.attempt]}]
        found = self.aws.ec2.describe_instances(Filters=filters)["Reservations"]
        return [
            dict(each)
            for one in found
            for each in one["Instances"]
            if each["State"]["Name"] not in ("shutting-down", "terminated")
        ]

    def templates(self) -> list[str]:
        found = self.aws.ec2.describe_launch_templates()["LaunchTemplates"]
        return [each["LaunchTemplateName"] for each in found if each["LaunchTemplateName"].startswith(TEMPLATE_PREFIX)]

    def end(self) -> None:
        if ids := [each["InstanceId"] for each in self.described()]:
            self.ec2.terminate(ids)


class Session:
    """A session whose clients are the host's."""

    def __init__(self, host: Host, own: Any) -> None:
        self._host, self._own = host, own

    def client(self, service: str, *, config: Any, **_: Any) -> Any:
        how = {"endpoint_url": self._host.aws, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return self._own.client(service, config=config, **how)


@pytest.fixture
def cloud(host: Host, unique: str, kit: FaultKit) -> Iterator[Cloud]:
    found = Cloud(host, unique)
    yield found
    kit.clear()
    found.end()


def test_a_fleet_s_instances_are_like_any_other(cloud: Cloud, kit: FaultKit) -> None:
    members = cloud.hunt(2, cloud.places("spot", "on-demand"))
    assert kit.calls("CreateFleet") == 1
    assert kit.calls("RunInstances") == 0
    found = {each["InstanceId"]: each for each in cloud.described()}
    assert set(found) == {member.instance.id for member in members if member.instance}
    for member in members:
        assert member.instance is not None
        seen = found[member.instance.id]
        assert seen["InstanceLifecycle"] == "spot"
        assert seen["MetadataOptions"]["HttpTokens"] == "required"
        assert seen["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
        assert seen["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
        assert seen["IamInstanceProfile"]["Arn"].endswith(preset.PROFILE)
        tags = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
        assert {**cloud.order.tags, **member.tags, LAUNCH_TAG: cloud.order.attempt}.items() <= tags.items()
        told = cloud.aws.ec2.describe_instance_attribute(InstanceId=member.instance.id, Attribute="userData")
        assert base64.b64decode(told["UserData"]["Value"]).decode() == cloud.order.user_data
        behaviour = cloud.aws.ec2.describe_instance_attribute(
            InstanceId=member.instance.id, Attribute="instanceInitiatedShutdownBehavior"
        )
        assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
        volume = cloud.aws.ec2.describe_volumes(VolumeIds=[seen["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])
        assert (volume["Volumes"][0]["Size"], volume["Volumes"][0]["Encrypted"]) == (40, True)
    assert cloud.templates() == []


def test_what_spot_does_not_give_comes_on_demand_and_no_more(cloud: Cloud, kit: FaultKit) -> None:
    kit.room(2, market="spot")
    members = cloud.hunt(5, cloud.places("spot", "on-demand"))
    assert [member.error for member in members] == [None] * 5
    assert sorted(each.get("InstanceLifecycle", "on-demand") for each in cloud.described()) == [
        *["on-demand"] * 3,
        *["spot"] * 2,
    ]
    assert (kit.calls("CreateFleet"), kit.calls("RunInstances")) == (1, 1)


def test_fewer_than_asked_are_kept_and_the_others_told(cloud: Cloud, kit: FaultKit) -> None:
    kit.room(3)
    members = cloud.hunt(4, cloud.places("on-demand"))
    assert sum(member.instance is not None for member in members) == 3 == len(cloud.described())
    assert [type(member.error) for member in members if member.error] == [NoCapacity]


@pytest.mark.parametrize("refused", ["CreateFleet", "CreateLaunchTemplate"])
def test_where_fleets_are_not_permitted_spot_is_asked_for_place_by_place_from_then_on(
    cloud: Cloud, kit: FaultKit, refused: str
) -> None:
    kit.fault(refused, code="UnauthorizedOperation", status=403, times=None)
    pace = Pace()
    for number in range(2):
        member = Member("attempt", {"flow-run": "r"})
        order = replace(cloud.order, attempt=f"{cloud.order.attempt}-{number}")
        anyio.run(Hunt(Launches(cloud.aws), order, cloud.places("spot"), [member], pace=pace).run)
        assert member.instance is not None
        assert member.instance.market == "spot"
        cloud.ec2.terminate([member.instance.id])
    assert (kit.calls(refused), kit.calls("RunInstances")) == (1, 2)
    assert cloud.templates() == []


@pytest.mark.parametrize("lost", ["CreateFleet", "CreateLaunchTemplate", "RunInstances", "CreateTags"])
def test_an_answer_that_is_lost_costs_nothing(cloud: Cloud, kit: FaultKit, lost: str) -> None:
    kit.fault(lost, lost=True)
    market = "on-demand" if lost == "RunInstances" else "spot"
    members = cloud.hunt(2, cloud.places(market))
    assert kit.hits() == [1]
    assert {each["InstanceId"] for each in cloud.described()} == {
        member.instance.id for member in members if member.instance
    }
    assert all(member.instance is not None for member in members)
    assert cloud.templates() == []


def test_one_that_cannot_be_tagged_at_first_is_kept_and_one_that_never_can_is_ended(
    cloud: Cloud, kit: FaultKit
) -> None:
    kit.fault("CreateTags", code="UnauthorizedOperation", status=403, times=2)
    members = cloud.hunt(2, cloud.places("on-demand"))
    assert all(member.instance is not None for member in members)
    assert (len(cloud.described()), kit.calls("RunInstances")) == (2, 1)
    kit.clear()
    kit.fault("CreateTags", code="UnauthorizedOperation", status=403, times=None)
    (member,) = Cloud.hunt(_again(cloud), 1, cloud.places("on-demand"))
    assert isinstance(member.error, TagsRefused)
    assert len(cloud.described()) == 0


def _again(cloud: Cloud) -> Cloud:
    cloud.end()
    cloud.order = replace(cloud.order, attempt=f"{cloud.order.attempt}-again")
    return cloud


def test_the_same_token_gives_the_same_instances_and_other_parameters_are_refused(cloud: Cloud) -> None:
    ec2 = Launches(cloud.aws)
    for places in (tuple(cloud.places("spot")), tuple(cloud.places("on-demand")[:1])):
        ask = Ask(places, 2, f"{cloud.order.attempt}-{len(places)}")
        first, second = ec2.ask(cloud.order, ask), ec2.ask(cloud.order, ask)
        assert [each.id for each in first.instances] == [each.id for each in second.instances]
        assert len(first.instances) == 2
        with pytest.raises(AwsRefused) as caught:
            ec2.ask(cloud.order, Ask(places, 1, ask.token))
        assert caught.value.code == "IdempotentParameterMismatch"
    ec2.close()
    ec2.close()
    assert cloud.templates() == []


def test_tags_of_an_instance_that_is_not_there_are_refused_by_ec2s_code(cloud: Cloud) -> None:
    with pytest.raises(AwsRefused) as caught:
        cloud.ec2.tag("i-0123456789abcdef0", {"Name": "w"})
    assert caught.value.code == "InvalidInstanceID.NotFound"
