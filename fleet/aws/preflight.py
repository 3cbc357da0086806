"""Which permissions an identity lacks, named before anything exists. Asks by `probes`, decides by `permissions`.

A check creates nothing and costs some twenty calls that run side by side. A controller is checked as each run begins, a pool
worker before the first launch of each kind; `fleet setup --check` and the flow `preflight` ask thoroughly.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fleet.aws.capacity import Candidate
from fleet.aws.failures import AwsRefused, calling
from fleet.aws.groups import group_arguments
from fleet.aws.identity import Caller, caller
from fleet.aws.instances import LaunchOrder, launch_arguments
from fleet.aws.network import Network
from fleet.aws.permissions import (
    Finding,
    Outcome,
    PermissionsMissing,
    Role,
    in_order,
    missing,
)
from fleet.aws.probes import Probe, Scope, controller_probes, launch_findings, launcher_probes, said
from fleet.aws.session import Aws

AT_ONCE = 8
"""Probes that ask at the same time."""
SIMULATED = {"allowed": Outcome.ALLOWED, "explicitDeny": Outcome.MISSING, "implicitDeny": Outcome.MISSING}
TAGS = ("aws:RequestTag/inspect-fleet:pool", "aws:ResourceTag/inspect-fleet:pool")
"""Condition keys of the account's policies: a simulation is told that they are there."""


def findings(aws: Aws, role: Role, scope: Scope, *, thorough: bool = False) -> tuple[Finding, ...]:
    """What is known of each permission of the role, in order. Never raises for what AWS refuses.

    `thorough`: also of the permissions that the product gets along without, and by IAM's simulation where there is no harmless
    way to ask. CredentialsBad, Unreachable: nobody could be asked anything.
    """
    who = caller(aws)
    found: dict[str, Finding] = {}
    probes = _probes(aws, role, scope, who, thorough=thorough)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="preflight") as threads:
        launch = threads.submit(launch_findings, aws, scope.launch) if role == "launcher" and scope.launch else None
        answers = list(threads.map(lambda probe: probe.ask(role), probes))
        answers += launch.result() if launch else []
    found = {finding.permission.action: finding for finding in answers}
    known = _reconciled(in_order(role, found))
    return _simulated(aws, role, scope, who, known) if thorough else known


def missing_permissions(aws: Aws, role: Role, scope: Scope, *, thorough: bool = False) -> list[Finding]:
    """The permissions that are needed and not there; empty: none, as far as it could be checked."""
    return missing(findings(aws, role, scope, thorough=thorough))


def require(aws: Aws, role: Role, scope: Scope) -> tuple[Finding, ...]:
    """All findings. PermissionsMissing: names each permission that isn't there, with what it is needed for."""
    found = findings(aws, role, scope)
    if lacks := missing(found):
        raise PermissionsMissing(role=role, who=caller(aws).arn, region=aws.region, missing=tuple(lacks))
    return found


def launch_scope(
    order: LaunchOrder, place: Candidate, network: Network, tags: Mapping[str, str], *, image_parameter: str
) -> Scope:
    """What a launcher's permissions are tried on: the launch as it will be, and the group that has to be made for it."""
    launch = launch_arguments(dataclasses.replace(order, security_groups=network.groups), place)
    group = group_arguments(network.vpc, tags) if network.vpc and not network.groups else None
    return Scope(launch=launch, group=group, image_parameter=image_parameter)


class Preflights:
    """The launches of one process that were found permitted, so that each kind is tried once. Safe between threads."""

    def __init__(self, check: Callable[[Aws, Role, Scope], object] = require) -> None:
        self._check = check
        # Held during a check: launches of one moment wait for the first one's answer.
        self._lock = threading.Lock()
        self._permitted: set[tuple[object, ...]] = set()

    def launcher(self, aws: Aws, scope: Scope) -> None:
        """PermissionsMissing: a launch of this kind isn't permitted. One that is isn't tried again."""
        kind = (aws, _frozen(_kind_of(scope.launch or {})), _frozen(scope.group or {}), scope.image_parameter)
        with self._lock:
            if kind not in self._permitted:
                self._check(aws, "launcher", scope)
                self._permitted.add(kind)


def _kind_of(launch: Mapping[str, Any]) -> dict[str, Any]:
    """What may decide on a permission: not the values that differ from launch to launch."""
    kind = {key: value for key, value in launch.items() if key not in {"ClientToken", "UserData"}}
    keys = sorted(tag["Key"] for one in launch.get("TagSpecifications", []) for tag in one["Tags"])
    return {**kind, "TagSpecifications": keys}


def _frozen(value: Any) -> object:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _frozen(one)) for key, one in value.items()))
    return tuple(_frozen(one) for one in value) if isinstance(value, list | tuple) else value


def _probes(aws: Aws, role: Role, scope: Scope, who: Caller, *, thorough: bool) -> list[Probe]:
    match role:
        case "controller":
            return controller_probes(aws, scope, who)
        case "launcher":
            return launcher_probes(aws, scope, thorough=thorough)
        case "operator":
            return []  # nothing it does has a dry run


def _reconciled(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Without leave to list, S3 answers a read of what isn't there as one that is forbidden: then nobody knows of reading."""
    known = {finding.permission.action: finding for finding in found}
    listing, reading = known.get("s3:ListBucket"), known.get("s3:GetObject")
    if listing and reading and Outcome.MISSING is listing.outcome is reading.outcome:
        why = "without s3:ListBucket nobody can tell"
        known["s3:GetObject"] = dataclasses.replace(reading, outcome=Outcome.UNKNOWN, detail=why)
    return tuple(known.values())


def _simulated(aws: Aws, role: Role, scope: Scope, who: Caller, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings with IAM's own word on what couldn't be checked, where this identity may ask for it."""
    open_ = [finding for finding in found if finding.outcome is Outcome.UNKNOWN]
    if not open_:
        return found
    try:
        said_ = _simulate(aws, who, scope, [finding.permission.action for finding in open_])
    except AwsRefused as refusal:
        why = f"IAM's simulation isn't open to this identity ({said(refusal)})"
        return tuple(
            dataclasses.replace(finding, detail=why) if finding in open_ and role == "operator" else finding
            for finding in found
        )
    return tuple(
        _with_word(finding, said_.get(finding.permission.action), role) if finding in open_ else finding
        for finding in found
    )


def _with_word(finding: Finding, word: str | None, role: Role) -> Finding:
    outcome = SIMULATED.get(word or "", Outcome.UNKNOWN)
    if outcome is Outcome.ALLOWED:
        return dataclasses.replace(finding, outcome=outcome, detail="")
    if outcome is Outcome.MISSING and role == "operator":
        return dataclasses.replace(finding, outcome=outcome, detail=f"IAM's simulation says {word}")
    # A condition that the simulation isn't told of may be met in earnest: no verdict.
    return dataclasses.replace(finding, detail=f"IAM's simulation says {word}") if word else finding


def _simulate(aws: Aws, who: Caller, scope: Scope, actions: list[str]) -> dict[str, str]:
    """IAM's word on each action. AwsRefused: it may not be asked, or can't say for such an identity."""
    source = _policy_source(aws, who)
    by_resource: dict[str, list[str]] = {}
    for action in actions:
        by_resource.setdefault(resource_of(action, aws.region, who, scope), []).append(action)
    words: dict[str, str] = {}
    for resource, some in by_resource.items():
        with calling("iam", source):
            answer = aws.iam.simulate_principal_policy(
                PolicySourceArn=source,
                ActionNames=some,
                ResourceArns=[resource],
                ContextEntries=[
                    {"ContextKeyName": key, "ContextKeyValues": ["any"], "ContextKeyType": "string"} for key in TAGS
                ],
            )
        words |= {one["EvalActionName"]: one["EvalDecision"] for one in answer["EvaluationResults"]}
    return words


def resource_of(action: str, region: str, who: Caller, scope: Scope) -> str:
    """The ARN on which an action is simulated: policies name resources, and nobody may do a thing to all of them."""
    service, _, name = action.partition(":")
    account = f"arn:{who.partition}:{service}"
    match service:
        case "cloudformation":
            return f"{account}:{region}:{who.account}:stack/inspect-fleet/*"
        case "iam" if "InstanceProfile" in name:
            return f"{account}::{who.account}:instance-profile/inspect-fleet-worker"
        case "iam" if name in ("CreatePolicy", "CreatePolicyVersion"):
            return f"{account}::{who.account}:policy/inspect-fleet-controller"
        case "iam" if name == "CreateServiceLinkedRole":
            return f"{account}::{who.account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
        case "iam":
            return f"{account}::{who.account}:role/inspect-fleet-worker"
        case "s3":
            return f"{account}:::{scope.bucket or f'inspect-fleet-{who.account}-{region}'}"
        case "ec2" if name == "TerminateInstances":
            return f"{account}:{region}:{who.account}:instance/*"
        case "ec2" if name == "DeleteLaunchTemplate":
            return f"{account}:{region}:{who.account}:launch-template/*"
        case "ec2" if name == "CreateSecurityGroup":
            return f"{account}:{region}:{who.account}:security-group/*"
        case _:
            return "*"


def _policy_source(aws: Aws, who: Caller) -> str:
    """The ARN that policies are attached to: a session's own has lost its role's path."""
    _, _, session = who.arn.partition(":assumed-role/")
    if not session:
        return who.arn
    role = session.partition("/")[0]
    with calling("iam", role):
        return aws.iam.get_role(RoleName=role)["Role"]["Arn"]
