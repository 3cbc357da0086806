"""Subnets and security groups against the emulator: what is named is checked, what isn't is found or made, once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.capacity import Candidate
from fleet.aws.failures import AwsRefused, Denied, Throttled
from fleet.aws.groups import GROUP_NAME, VISIBLE_S, GroupsRefused, found_or_made
from fleet.aws.network import (
    KEPT_S,
    Network,
    Networks,
    NoDefaultVpc,
    Subnet,
    SubnetsRefused,
    TypesNotOffered,
    look,
    settle,
)
from fleet.aws.session import Aws
from fleet.local import preset
from tests.fleet.aws.conftest import REGION, fail, reply
from tests.fleet.local.conftest import Host

TYPES = ["c7i.4xlarge", "m5.large"]
POOL = {"inspect-fleet:pool": "0d1e"}


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def vpc(aws: Aws) -> str:
    """A VPC of this test's own, without any group but its default one."""
    return str(aws.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"])


def subnet(aws: Aws, vpc: str, zone: str, block: int) -> str:
    made = aws.ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{block}.0/24", AvailabilityZone=f"{REGION}{zone}")
    return str(made["Subnet"]["SubnetId"])


def group(aws: Aws, vpc: str, name: str, *, cidr: str = "", ipv6: str = "") -> str:
    made = aws.ec2.create_security_group(GroupName=name, Description="test", VpcId=vpc)["GroupId"]
    rule: dict[str, Any] = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    if cidr:
        rule["IpRanges"] = [{"CidrIp": cidr}]
    if ipv6:
        rule["Ipv6Ranges"] = [{"CidrIpv6": ipv6}]
    if cidr or ipv6:
        aws.ec2.authorize_security_group_ingress(GroupId=made, IpPermissions=[rule])  # type: ignore[list-item]
    return str(made)


def groups_in(aws: Aws, vpc: str) -> dict[str, Any]:
    found = aws.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    return {one["GroupName"]: one for one in found if one["GroupName"] != "default"}


def unseen(aws: Aws, *, looks: int) -> None:
    """EC2 describes no group for so many looks: it is eventually consistent."""
    left = iter(range(looks))

    def hook(**_: Any) -> Any:
        return None if next(left, None) is None else (SimpleNamespace(status_code=200), {"SecurityGroups": []})

    aws.ec2.meta.events.register("before-call.ec2.DescribeSecurityGroups", hook)


# What is named


def test_subnets_stay_in_the_order_they_were_named(aws: Aws, vpc: str) -> None:
    first, second = subnet(aws, vpc, "b", 1), subnet(aws, vpc, "a", 2)
    own = group(aws, vpc, "workers")
    found = look(aws, subnets=[first, second, first], groups=[own], instance_types=TYPES)
    assert [(place.id, place.zone) for place in found.subnets] == [(first, "us-east-1b"), (second, "us-east-1a")]
    assert (found.vpc, found.groups) == (vpc, (own,))


@pytest.mark.parametrize("named", ["workers", "id"])
def test_a_group_is_named_by_name_or_id_and_used_by_id(aws: Aws, vpc: str, named: str) -> None:
    """EC2 takes no names beside a subnet."""
    own, place = group(aws, vpc, "workers"), subnet(aws, vpc, "a", 1)
    wanted = own if named == "id" else named
    assert look(aws, subnets=[place], groups=[wanted, own], instance_types=TYPES).groups == (own,)


def test_an_unknown_subnet_is_named_and_nothing_is_made(aws: Aws, vpc: str) -> None:
    known = subnet(aws, vpc, "a", 1)
    with pytest.raises(SubnetsRefused) as caught:
        look(aws, subnets=[known, "subnet-0123456789abcdef0", "subnet-1"], groups=[], instance_types=TYPES)
    assert "EC2 knows no subnet-0123456789abcdef0 nor subnet-1 there" in str(caught.value)
    assert REGION in str(caught.value)
    assert groups_in(aws, vpc) == {}


def test_subnets_of_two_vpcs_are_refused(aws: Aws, vpc: str) -> None:
    other = str(aws.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"])
    with pytest.raises(SubnetsRefused, match=f"is in {vpc}, .* is in {other}"):
        look(aws, subnets=[subnet(aws, vpc, "a", 1), subnet(aws, other, "a", 1)], groups=[], instance_types=TYPES)
    assert groups_in(aws, vpc) == groups_in(aws, other) == {}


def test_an_unknown_group_is_named(aws: Aws, vpc: str) -> None:
    place = subnet(aws, vpc, "a", 1)
    with pytest.raises(GroupsRefused, match=f"security group nobody, sg-1 refused in {REGION}: there is no such group"):
        look(aws, subnets=[place], groups=["nobody", "sg-1"], instance_types=TYPES)


def test_a_group_of_another_vpc_than_the_subnets_is_refused(aws: Aws, vpc: str) -> None:
    other = str(aws.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"])
    strange = group(aws, other, "workers")
    with pytest.raises(GroupsRefused, match=f"it belongs to {other}, and the subnets to {vpc}"):
        look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[strange], instance_types=TYPES)


@pytest.mark.parametrize(("cidr", "ipv6"), [("0.0.0.0/0", ""), ("", "::/0")])
def test_a_group_that_lets_anybody_in_is_refused_with_the_way_on(aws: Aws, vpc: str, cidr: str, ipv6: str) -> None:
    """An instance takes no connections: a port that is open to the world serves nobody who is welcome."""
    opened = group(aws, vpc, "open", cidr=cidr, ipv6=ipv6)
    with pytest.raises(GroupsRefused) as caught:
        look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[opened], instance_types=TYPES)
    assert (
        f"security group open ({opened}) refused in {REGION}: it lets anybody in (tcp 22 from {cidr or ipv6})"
        in str(caught.value)
    )
    assert GROUP_NAME in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_group_with_rules_for_some_is_the_persons_own_affair(aws: Aws, vpc: str) -> None:
    named = group(aws, vpc, "office", cidr="10.0.0.0/8")
    assert look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[named], instance_types=TYPES).groups == (named,)


# The group that is ours


def test_a_look_makes_nothing(aws: Aws, vpc: str) -> None:
    found = look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[], instance_types=TYPES)
    assert found.groups == ()
    assert groups_in(aws, vpc) == {}


def test_our_group_is_made_once_with_nothing_coming_in(aws: Aws, vpc: str) -> None:
    clock = Clock()
    network = look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[], instance_types=TYPES)
    first = settle(aws, network, POOL, clock=clock, sleep=clock.sleep)
    again = settle(aws, network, POOL, clock=clock, sleep=clock.sleep)
    assert first.groups == again.groups
    made = groups_in(aws, vpc)[GROUP_NAME]
    assert made["GroupId"] == first.groups[0]
    assert made["IpPermissions"] == []
    assert [rule["IpProtocol"] for rule in made["IpPermissionsEgress"]] == ["-1"]
    assert {tag["Key"]: tag["Value"] for tag in made["Tags"]} == {"Name": GROUP_NAME, **POOL}
    assert clock.slept == []


def test_our_group_is_found_where_it_is(aws: Aws, vpc: str) -> None:
    there = group(aws, vpc, GROUP_NAME)
    network = look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[], instance_types=TYPES)
    assert network.groups == (there,)
    assert settle(aws, network, POOL) is network


def test_a_group_of_our_name_that_lets_something_in_is_refused_and_left_as_it_is(aws: Aws, vpc: str) -> None:
    group(aws, vpc, GROUP_NAME, cidr="10.0.0.0/8")
    before = groups_in(aws, vpc)
    with pytest.raises(GroupsRefused, match=r"inbound rules \(tcp 22 from 10.0.0.0/8\).*never changed here"):
        look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[], instance_types=TYPES)
    assert groups_in(aws, vpc) == before


def test_a_group_of_our_name_that_lets_nothing_out_is_refused(aws: Aws, vpc: str) -> None:
    made = group(aws, vpc, GROUP_NAME)
    everything: list[Any] = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    aws.ec2.revoke_security_group_egress(GroupId=made, IpPermissions=everything)
    with pytest.raises(GroupsRefused, match="lets nothing out"):
        look(aws, subnets=[subnet(aws, vpc, "a", 1)], groups=[], instance_types=TYPES)


def test_a_group_that_another_made_at_the_same_time_is_taken_once_ec2_shows_it(aws: Aws, vpc: str) -> None:
    """EC2 says Duplicate at once, and may describe the group seconds later."""
    clock = Clock()
    fail(aws.ec2, "CreateSecurityGroup", "InvalidGroup.Duplicate", "it is there", times=1)
    clock.meanwhile = lambda: len(clock.slept) == 3 and group(aws, vpc, GROUP_NAME)
    found = found_or_made(aws, vpc, POOL, clock=clock, sleep=clock.sleep)
    assert found == groups_in(aws, vpc)[GROUP_NAME]["GroupId"]
    assert len(clock.slept) == 3


def test_a_duplicate_that_is_never_shown_ends_in_ec2s_own_words(aws: Aws, vpc: str) -> None:
    clock = Clock()
    fail(aws.ec2, "CreateSecurityGroup", "InvalidGroup.Duplicate", "it is there")
    with pytest.raises(AwsRefused, match=r"InvalidGroup\.Duplicate: it is there"):
        found_or_made(aws, vpc, POOL, clock=clock, sleep=clock.sleep)
    assert clock.now == pytest.approx(VISIBLE_S)


def test_a_new_group_is_waited_for_until_ec2_shows_it(aws: Aws, vpc: str) -> None:
    clock = Clock()
    unseen(aws, looks=2)
    found = found_or_made(aws, vpc, POOL, clock=clock, sleep=clock.sleep)
    assert found == groups_in(aws, vpc)[GROUP_NAME]["GroupId"]
    assert len(clock.slept) == 1


@pytest.mark.parametrize(("code", "kind"), [("UnauthorizedOperation", Denied), ("RequestLimitExceeded", Throttled)])
def test_a_group_that_may_not_be_made_is_said(aws: Aws, vpc: str, code: str, kind: type[AwsRefused]) -> None:
    fail(aws.ec2, "CreateSecurityGroup", code)
    with pytest.raises(kind, match=f"CreateSecurityGroup of security group {GROUP_NAME} of {vpc}"):
        found_or_made(aws, vpc, POOL)
    assert groups_in(aws, vpc) == {}


def test_many_pool_workers_at_once_make_one_group(host: Host) -> None:
    """Eight processes' worth of clients, each without a lock in common, in a VPC that has no such group yet."""

    def client() -> Aws:
        session = boto3.Session("person", "person", region_name=preset.REGION)
        made = Aws(preset.REGION, session=session)
        made._clients["ec2"] = host.client("ec2")
        return made

    clients = [client() for _ in range(8)]
    vpc = str(clients[0].ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"])
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda aws: found_or_made(aws, vpc, POOL), clients))
    assert len(set(found)) == 1
    assert list(groups_in(clients[0], vpc)) == [GROUP_NAME]


# The default VPC, and its zones


def test_the_default_vpc_gives_a_subnet_a_zone(aws: Aws, vpc: str) -> None:
    subnet(aws, vpc, "a", 1)  # of another VPC: not among them
    found = look(aws, subnets=[], groups=[], instance_types=["c7i.4xlarge"])
    zones = [place.zone for place in found.subnets]
    assert zones == sorted(zones)
    assert len(zones) >= 3
    assert {place.vpc for place in found.subnets} == {found.vpc}
    assert vpc != found.vpc


@pytest.mark.parametrize(
    ("vpcs", "why"),
    [
        ([], "the region has no default VPC"),
        ([{"VpcId": "vpc-1"}], "the default VPC vpc-1 has no default subnet"),
    ],
)
def test_without_a_default_vpc_one_line_says_what_to_set(aws: Aws, vpcs: list[Any], why: str) -> None:
    reply(aws.ec2, "DescribeSubnets", {"Subnets": []})
    reply(aws.ec2, "DescribeVpcs", {"Vpcs": vpcs})
    with pytest.raises(NoDefaultVpc) as caught:
        look(aws, subnets=[], groups=[], instance_types=TYPES)
    assert str(caught.value).startswith(f"no network in {REGION}: {why}. Name subnets (`subnets` of")
    assert str(caught.value).endswith(f"aws ec2 create-default-vpc --region {REGION}")
    assert "\n" not in str(caught.value)


def test_a_type_is_tried_only_where_its_zone_has_it() -> None:
    zones = {"c7i.large": frozenset({"a", "b"}), "p5.48xlarge": frozenset({"b"})}
    network = Network(
        region=REGION,
        vpc="vpc-1",
        subnets=(Subnet("s-a", "vpc-1", "a"), Subnet("s-b", "vpc-1", "b")),
        groups=(),
        offered=zones,
    )
    assert network.places(["p5.48xlarge", "c7i.large"], "on-demand") == (
        Candidate("p5.48xlarge", "s-b", "on-demand"),
        Candidate("c7i.large", "s-a", "on-demand"),
        Candidate("c7i.large", "s-b", "on-demand"),
    )


def test_a_type_that_no_zone_has_is_refused_where_nothing_else_is_left() -> None:
    network = Network(REGION, "vpc-1", (Subnet("s-e", "vpc-1", "us-east-1e"),), (), {"c7i.large": frozenset({"x"})})
    with pytest.raises(TypesNotOffered, match=r"c7i.large and no.such can't be launched .*\(us-east-1e\)"):
        network.places(["c7i.large", "no.such", "c7i.large"], "spot")


@given(
    kinds=st.lists(st.sampled_from("abcd"), min_size=1, max_size=5),
    zones=st.lists(st.sampled_from(["z1", "z2", "z3", ""]), max_size=4),
    offered=st.none() | st.dictionaries(st.sampled_from("abcd"), st.frozensets(st.sampled_from(["z1", "z2", "z3"]))),
    market=st.sampled_from(["spot", "on-demand"]),
)
def test_places_are_all_candidates_that_can_have_the_type_and_no_other(
    kinds: list[str], zones: list[str], offered: Any, market: Any
) -> None:
    subnets = tuple(Subnet(f"s-{place}", "v", zone) for place, zone in enumerate(zones))
    everywhere = Network(REGION, "v", subnets, ()).places(kinds, market)
    try:
        found = Network(REGION, "v", subnets, (), offered).places(kinds, market)
    except TypesNotOffered:
        found = ()
    where = {one.id: one.zone for one in subnets}
    assert all(one.zone == where.get(one.subnet or "", "") for one in everywhere)

    def fits(one: Candidate) -> bool:
        return offered is None or not one.zone or one.zone in offered.get(one.instance_type, ())

    assert found == tuple(one for one in everywhere if fits(one))


# Less than all permissions


def test_without_leave_to_look_at_subnets_ec2_picks_one(aws: Aws) -> None:
    fail(aws.ec2, "DescribeSubnets", "UnauthorizedOperation")
    found = look(aws, subnets=[], groups=["workers"], instance_types=TYPES)
    assert (found.vpc, found.subnets, found.groups) == (None, (), ("workers",))
    assert [place.subnet for place in found.places(TYPES, "on-demand")] == [None, None]


def test_what_is_named_is_taken_at_its_word_where_ec2_may_not_be_asked(aws: Aws) -> None:
    for operation in ("DescribeSubnets", "DescribeSecurityGroups", "DescribeInstanceTypeOfferings"):
        fail(aws.ec2, operation, "UnauthorizedOperation")
    found = look(aws, subnets=["subnet-1"], groups=["sg-1"], instance_types=TYPES)
    assert (found.groups, found.offered) == (("sg-1",), None)
    assert [place.subnet for place in found.places(TYPES, "on-demand")] == ["subnet-1", "subnet-1"]


def test_without_leave_to_ask_for_zones_every_zone_is_tried(aws: Aws) -> None:
    fail(aws.ec2, "DescribeInstanceTypeOfferings", "UnauthorizedOperation")
    found = look(aws, subnets=[], groups=[], instance_types=["no.such"])
    assert len(found.places(["no.such"], "on-demand")) == len(found.subnets) >= 3


@pytest.mark.parametrize("operation", ["DescribeSubnets", "DescribeSecurityGroups"])
def test_without_leave_and_without_a_group_there_is_no_going_on(aws: Aws, operation: str) -> None:
    fail(aws.ec2, operation, "UnauthorizedOperation")
    with pytest.raises(Denied, match=operation):
        look(aws, subnets=[], groups=[], instance_types=TYPES)


# Remembered


def test_launches_of_one_moment_ask_once(aws: Aws, vpc: str) -> None:
    """Sixteen threads want a network: EC2 is asked once for the subnets, and makes one group."""
    place = subnet(aws, vpc, "a", 1)
    asked: list[str] = []
    aws.ec2.meta.events.register("before-call.ec2", lambda model, **_: asked.append(model.name))
    networks = Networks()

    def want(_: int) -> tuple[str, ...]:
        network = networks.look(aws, subnets=[place], groups=[], instance_types=TYPES)
        return networks.settle(aws, network, POOL).groups

    with ThreadPoolExecutor(16) as threads:
        found = set(threads.map(want, range(16)))
    assert len(found) == 1
    assert asked.count("DescribeSubnets") == asked.count("CreateSecurityGroup") == 1
    assert asked.count("DescribeInstanceTypeOfferings") == 1


def test_an_answer_is_asked_for_again_after_a_while(aws: Aws, vpc: str) -> None:
    clock = Clock()
    networks = Networks(clock=clock, sleep=clock.sleep)
    first, second = subnet(aws, vpc, "a", 1), subnet(aws, vpc, "b", 2)
    own = group(aws, vpc, "workers")

    def wanted() -> Network:
        return networks.look(aws, subnets=[first, second], groups=[own], instance_types=TYPES)

    assert wanted() is wanted()
    aws.ec2.delete_subnet(SubnetId=second)
    wanted()
    clock.now += KEPT_S
    with pytest.raises(SubnetsRefused, match=second):
        wanted()
