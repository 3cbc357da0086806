"""Where in the account's network instances stand: subnets zone by zone, and a security group that lets nothing in.

Looking (`look`) creates nothing; `settle` makes the group where none was named and none is there. What a person names is
checked and never changed. The pool worker calls both before its launches, through `Networks`, which remembers the answers: only
pool workers may create anything in EC2.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.aws.capacity import Candidate, Market, candidates
from fleet.aws.commands import aws_command
from fleet.aws.failures import Denied, calling
from fleet.aws.groups import found_or_made, named_groups, own_group
from fleet.aws.session import Aws
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

KEPT_S = 300.0
"""Seconds for which an answer is remembered: long for a burst of launches, short for a person who mends the network."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet as EC2 describes it."""

    id: str
    vpc: str
    zone: str
    """Name of its availability zone; empty: EC2 couldn't be asked."""


@dataclass(frozen=True, slots=True)
class Network:
    """Where the instances of one configuration can stand."""

    region: str
    vpc: str | None
    """None: EC2 couldn't be asked, and takes its default."""
    subnets: tuple[Subnet, ...]
    """In the order they are tried. Empty: EC2 picks one of the default VPC."""
    groups: tuple[str, ...]
    """Ids; names only where EC2 couldn't be asked. Empty: the group has to be made."""
    offered: Mapping[str, frozenset[str]] | None = None
    """The zones that have each instance type; None: EC2 couldn't be asked."""

    def places(self, instance_types: Sequence[str], market: Market) -> tuple[Candidate, ...]:
        """Every type in every subnet whose zone has it, in order. TypesNotOffered: there is none."""
        zones = {subnet.id: subnet.zone for subnet in self.subnets}
        found = candidates(instance_types, zones, market)
        if self.offered is None:
            return found
        fit = tuple(one for one in found if self._has(one.instance_type, one.zone))
        if not fit:
            raise TypesNotOffered(
                instance_types=tuple(dict.fromkeys(instance_types)),
                region=self.region,
                zones=tuple(sorted(set(zones.values()))),
            )
        return fit

    def _has(self, instance_type: str, zone: str) -> bool:
        return not zone or self.offered is None or zone in self.offered.get(instance_type, ())


class NoDefaultVpc(RequestRefused):
    """No subnets are named, and the region has no default VPC, or one without its subnets."""

    region: str
    why: str

    def message(self) -> str:
        """One line: region, reason, and what to set."""
        return (
            f"no network in {self.region}: {self.why}. Name subnets (`subnets` of the Fleet Account block or of the work "
            f"pool), or make a default VPC: {aws_command(self.region, 'ec2', 'create-default-vpc')}"
        )


class SubnetsRefused(RequestRefused):
    """A subnet that was named isn't there, or they don't belong together."""

    region: str
    subnets: tuple[str, ...]
    why: str

    def message(self) -> str:
        """One line: which, where, why, and where they are named."""
        return (
            f"subnets {', '.join(self.subnets)} refused in {self.region}: {self.why}. They are named by `subnets` of the Fleet "
            "Account block or of the work pool"
        )


class TypesNotOffered(RequestRefused):
    """No zone of the subnets has any of the instance types."""

    region: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]

    def message(self) -> str:
        """One line: types, zones, and what helps."""
        return (
            f"{' and '.join(self.instance_types)} can't be launched in {self.region}: no zone of the subnets "
            f"({', '.join(self.zones)}) has it. Name other instance types, or subnets of other zones"
        )


def look(aws: Aws, *, subnets: Sequence[str], groups: Sequence[str], instance_types: Sequence[str]) -> Network:
    """The network that these name, with what EC2 tells of it; the default VPC's zones where no subnet is named.

    NoDefaultVpc, SubnetsRefused, GroupsRefused: it can't be launched in. Denied: EC2 may not be asked, and there is no going on
    without. Where what is named will do without the answer, EC2 is left to judge it.
    """
    try:
        places = judge_subnets(aws.region, subnets, _subnets(aws, subnets)) if subnets else _default_subnets(aws)
    except Denied as denied:
        if not groups:
            raise  # a group is found and made by its VPC
        log.warning("the subnets can't be checked: %s", denied)
        places = tuple(Subnet(subnet, "", "") for subnet in dict.fromkeys(subnets))
    vpc = places[0].vpc or None if places else None
    found: tuple[str, ...]
    if groups:
        try:
            found = named_groups(aws, groups, vpc)
        except Denied as denied:
            log.warning("the security groups can't be checked: %s", denied)
            found = tuple(dict.fromkeys(groups))
    else:
        ours = own_group(aws, vpc or "")
        found = (ours,) if ours else ()
    offered = _offered(aws, instance_types) if any(place.zone for place in places) else None
    return Network(region=aws.region, vpc=vpc, subnets=places, groups=found, offered=offered)


def settle(
    aws: Aws,
    network: Network,
    tags: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Network:
    """The network with its group, which is made, with `tags`, where it isn't there. AwsRefused, GroupsRefused."""
    if network.groups or network.vpc is None:
        return network
    return dataclasses.replace(network, groups=(found_or_made(aws, network.vpc, tags, clock=clock, sleep=sleep),))


def judge_subnets(region: str, named: Sequence[str], found: Iterable[Subnet]) -> tuple[Subnet, ...]:
    """The subnets in the order they were named. SubnetsRefused: one isn't there, or they are of several VPCs."""
    by_id = {subnet.id: subnet for subnet in found}
    wanted = tuple(dict.fromkeys(named))
    if missing := [subnet for subnet in wanted if subnet not in by_id]:
        raise SubnetsRefused(region=region, subnets=wanted, why=f"EC2 knows no {' nor '.join(missing)} there")
    ordered = tuple(by_id[subnet] for subnet in wanted)
    if len({subnet.vpc for subnet in ordered}) > 1:
        where = ", ".join(f"{subnet.id} is in {subnet.vpc}" for subnet in ordered)
        raise SubnetsRefused(
            region=region, subnets=wanted, why=f"a security group serves one VPC, and they are of several ({where})"
        )
    return ordered


class Networks:
    """The networks that one process launches in, remembered for `KEPT_S`. Safe between threads: one looks, the others wait."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        # Held while EC2 is asked: launches of one moment need one answer, and one of them makes the group.
        self._lock = threading.Lock()
        self._seen: dict[tuple[object, ...], tuple[float, Network]] = {}

    def look(
        self, aws: Aws, *, subnets: Sequence[str], groups: Sequence[str], instance_types: Sequence[str]
    ) -> Network:
        """As the function `look`."""
        key = (aws, *map(tuple, (subnets, groups, instance_types)))
        with self._lock:
            until, network = self._seen.get(key, (0.0, None))
            if network is None or self._clock() >= until:
                network = look(aws, subnets=subnets, groups=groups, instance_types=instance_types)
                self._seen[key] = (self._clock() + KEPT_S, network)
            return network

    def settle(self, aws: Aws, network: Network, tags: Mapping[str, str]) -> Network:
        """As the function `settle`."""
        if network.groups:
            return network
        with self._lock:
            settled = settle(aws, network, tags, clock=self._clock, sleep=self._sleep)
            self._seen |= {
                key: (until, dataclasses.replace(seen, groups=settled.groups))
                for key, (until, seen) in self._seen.items()
                if key[0] is aws and seen.vpc == network.vpc and not seen.groups
            }
            return settled


def _subnets(aws: Aws, ids: Sequence[str]) -> list[Subnet]:
    # By a filter and not by id: unknown ids are left out of the answer then, and all of them can be named at once.
    return _described(aws, [{"Name": "subnet-id", "Values": list(ids)}])


def _default_subnets(aws: Aws) -> tuple[Subnet, ...]:
    found = _described(aws, [{"Name": "default-for-az", "Values": ["true"]}])
    if found:
        return tuple(sorted(found, key=lambda subnet: subnet.zone))
    with calling("ec2", f"default VPC in {aws.region}"):
        vpcs = aws.ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    why = f"the default VPC {vpcs[0]['VpcId']} has no default subnet" if vpcs else "the region has no default VPC"
    raise NoDefaultVpc(region=aws.region, why=why)


def _described(aws: Aws, filters: list[FilterTypeDef]) -> list[Subnet]:
    with calling("ec2", f"subnets in {aws.region}"):
        answer = aws.ec2.describe_subnets(Filters=filters)["Subnets"]
    return [Subnet(one["SubnetId"], one["VpcId"], one["AvailabilityZone"]) for one in answer]


def _offered(aws: Aws, instance_types: Sequence[str]) -> dict[str, frozenset[str]] | None:
    """The zones that have each type; None: this identity may not ask."""
    zones: dict[str, set[str]] = {}
    try:
        with calling("ec2", f"zones of {', '.join(instance_types)} in {aws.region}"):
            pages = aws.ec2.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone",
                Filters=[{"Name": "instance-type", "Values": list(dict.fromkeys(instance_types))}],
            )
            for page in pages:
                for one in page["InstanceTypeOfferings"]:
                    zones.setdefault(one["InstanceType"], set()).add(one["Location"])
    except Denied as denied:
        log.warning("the zones of the instance types can't be looked up: %s", denied)
        return None
    return {kind: frozenset(where) for kind, where in zones.items()}
