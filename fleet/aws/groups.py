"""Security groups of instances: the ones that are named, and the one that is ours by its name.

Instances take no connections, so `GROUP_NAME` has no inbound rule; a group of that name that has some is refused, since nobody
here knows whom it serves. What a person names is checked and never changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.session import Aws
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, IpPermissionOutputTypeDef, SecurityGroupTypeDef

GROUP_NAME = "inspect-fleet-worker"
GROUP_DESCRIPTION = "Inspect Fleet workers: nothing comes in"
DUPLICATE = "InvalidGroup.Duplicate"
ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})
VISIBLE_S = 30.0
"""Seconds that EC2 may take to describe a group that was made a moment ago; usually it is one or two."""
LOOK_S = 0.5
"""Between two looks for such a group."""


@dataclass(frozen=True, slots=True)
class Group:
    """A security group as EC2 describes it."""

    id: str
    name: str
    vpc: str
    inbound: tuple[str, ...] = ()
    """What it lets in, one rule each, as people write it: `tcp 22 from 10.0.0.0/8`."""
    open: bool = False
    """Whether one of them lets anybody in."""
    outbound: bool = True
    """Whether it lets anything out."""

    @property
    def label(self) -> str:
        """What people are shown."""
        return f"{self.name} ({self.id})" if self.name else self.id


class GroupsRefused(RequestRefused):
    """A security group isn't there, is in another VPC, or lets in what it mustn't."""

    region: str
    groups: tuple[str, ...]
    why: str
    helps: str

    def message(self) -> str:
        """One line: which, where, why, and what helps."""
        return f"security group {', '.join(self.groups)} refused in {self.region}: {self.why}. {self.helps}"


def named_groups(aws: Aws, named: Sequence[str], vpc: str | None) -> tuple[str, ...]:
    """The ids of the groups that a person named by id or name. GroupsRefused; Denied: EC2 may not be asked.

    Without a VPC a name stays one, and EC2 looks for it in the default VPC: several VPCs may each have a group of that name.
    """
    if vpc is None:
        ids = [group for group in named if group.startswith("sg-")]
        judge_groups(aws.region, ids, _named(aws, ids, vpc), vpc)
        return tuple(dict.fromkeys(named))
    return judge_groups(aws.region, named, _named(aws, named, vpc), vpc)


def own_group(aws: Aws, vpc: str) -> str | None:
    """The id of the group that is ours by its name, in a VPC; None: it isn't there. GroupsRefused."""
    found = _described(aws, [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": [GROUP_NAME]}])
    return judge_own_group(aws.region, found[0]) if found else None


def found_or_made(
    aws: Aws,
    vpc: str,
    tags: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The id of our group in a VPC, which is made, with `tags`, where it isn't there. AwsRefused, GroupsRefused.

    Others may make it at the same time: EC2 lets one of them, and all go on with that one.
    """
    if there := own_group(aws, vpc):
        return there
    until = clock() + VISIBLE_S
    refusal: AwsRefused | None = None
    made = ""
    try:
        made = _make(aws, vpc, tags)
    except AwsRefused as refused:
        if refused.code != DUPLICATE:
            raise
        refusal = refused  # somebody was quicker; EC2 shows it to all in a moment
    while True:
        if there := own_group(aws, vpc):
            return there
        if clock() >= until:
            if refusal is not None:
                raise refusal
            return made
        sleep(LOOK_S)


def judge_groups(region: str, named: Sequence[str], found: Iterable[Group], vpc: str | None) -> tuple[str, ...]:
    """The ids of the groups in the order they were named.

    GroupsRefused: one isn't there, is of another VPC than the subnets (`vpc`; None: not known), or lets anybody in.
    """
    known = list(found)
    by_name = {group.name: group for group in known} | {group.id: group for group in known}
    wanted = tuple(dict.fromkeys(named))
    where = "They are named by `security_groups` of the Fleet Account block or of the work pool"
    if missing := tuple(group for group in wanted if group not in by_name):
        why = f"there is no such group in {vpc or 'the region'}"
        raise GroupsRefused(region=region, groups=missing, why=why, helps=where)
    ordered = tuple(by_name[group] for group in wanted)
    for group in ordered:
        if vpc and group.vpc != vpc:
            why = f"it belongs to {group.vpc}, and the subnets to {vpc}"
            raise GroupsRefused(region=region, groups=(group.label,), why=why, helps=where)
        if group.open:
            raise GroupsRefused(
                region=region,
                groups=(group.label,),
                why=f"it lets anybody in ({', '.join(group.inbound)}), and an instance takes no connections",
                helps=f"Remove that rule, or name another group; with none named, {GROUP_NAME} is used, which lets nothing in",
            )
    return tuple(dict.fromkeys(group.id for group in ordered))


def judge_own_group(region: str, group: Group) -> str:
    """The id of the group that is ours by its name. GroupsRefused: it has rules that ours has not."""
    helps = "It is never changed here: mend it, or name the groups to use (`security_groups`)"
    if group.inbound:
        rules = ", ".join(group.inbound)
        why = f"a group of this name must let nothing in, and this one has inbound rules ({rules})"
        raise GroupsRefused(region=region, groups=(group.label,), why=why, helps=helps)
    if not group.outbound:
        why = "it lets nothing out, so that an instance could reach neither AWS nor a model"
        raise GroupsRefused(region=region, groups=(group.label,), why=why, helps=helps)
    return group.id


def _named(aws: Aws, named: Sequence[str], vpc: str | None) -> list[Group]:
    ids = [group for group in named if group.startswith("sg-")]
    names = [group for group in named if not group.startswith("sg-")]
    found = _described(aws, [{"Name": "group-id", "Values": ids}]) if ids else []
    if names:
        within: list[FilterTypeDef] = [{"Name": "vpc-id", "Values": [vpc]}] if vpc else []
        found += _described(aws, [{"Name": "group-name", "Values": names}, *within])
    return found


def _described(aws: Aws, filters: list[FilterTypeDef]) -> list[Group]:
    with calling("ec2", f"security groups in {aws.region}"):
        return [_seen(found) for found in aws.ec2.describe_security_groups(Filters=filters)["SecurityGroups"]]


def _seen(found: SecurityGroupTypeDef) -> Group:
    rules = [(rule, _sources(rule)) for rule in found.get("IpPermissions", [])]
    return Group(
        id=found["GroupId"],
        name=found.get("GroupName", ""),
        vpc=found.get("VpcId", ""),
        inbound=tuple(f"{_traffic(rule)} from {source}" for rule, sources in rules for source in sources),
        open=any(source in ANYWHERE for _, sources in rules for source in sources),
        outbound=bool(found.get("IpPermissionsEgress")),
    )


def _sources(rule: IpPermissionOutputTypeDef) -> list[str]:
    return [
        *(one.get("CidrIp", "") for one in rule.get("IpRanges", [])),
        *(one.get("CidrIpv6", "") for one in rule.get("Ipv6Ranges", [])),
        *(one.get("PrefixListId", "") for one in rule.get("PrefixListIds", [])),
        *(one.get("GroupId", "") for one in rule.get("UserIdGroupPairs", [])),
    ]


def _traffic(rule: IpPermissionOutputTypeDef) -> str:
    """`tcp 22`, `udp 1000-2000`, or `all` for EC2's -1."""
    protocol = rule.get("IpProtocol", "-1")
    if protocol == "-1":
        return "all"
    low, high = rule.get("FromPort", -1), rule.get("ToPort", -1)
    return f"{protocol} {low}" if low == high else f"{protocol} {low}-{high}"


def group_arguments(vpc: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of CreateSecurityGroup for our group. EC2 gives it no inbound rule, and one that lets everything out."""
    named = {"Name": GROUP_NAME, **tags}
    return {
        "GroupName": GROUP_NAME,
        "Description": GROUP_DESCRIPTION,
        "VpcId": vpc,
        "TagSpecifications": [
            {
                "ResourceType": "security-group",
                "Tags": [{"Key": key, "Value": value} for key, value in named.items()],
            }
        ],
    }


def _make(aws: Aws, vpc: str, tags: Mapping[str, str]) -> str:
    with calling("ec2", f"security group {GROUP_NAME} of {vpc} in {aws.region}"):
        return aws.ec2.create_security_group(**group_arguments(vpc, tags))["GroupId"]
