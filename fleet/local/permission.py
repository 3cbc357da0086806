"""May an instance make this call? What AWS asks the policies of its role, from a request to the emulator.

The policies are those of the role in the emulated account, which the account's template put there: the text that a real account
evaluates. People's own credentials are not asked: the account is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fleet.local.calls import Call
from fleet.local.policy import Request, decide
from fleet.local.preset import ACCOUNT

Context = Mapping[str, Sequence[str]]
Tags = Mapping[str, str]
TagsOf = Callable[[str, str], Tags]
"""Tags of a resource, by its service and its name: of a parameter (ssm), of an instance (ec2). Empty: none, or no such resource."""

ALWAYS = frozenset({"sts:GetCallerIdentity"})
"""Needs no permission."""

S3_ACTIONS = {
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "DeleteObjects": "DeleteObject",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListBuckets": "ListAllMyBuckets",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListParts": "ListMultipartUploadParts",
    "UploadPart": "PutObject",
}
"""Operations whose action has another name."""
S3_SUBRESOURCES = frozenset(
    {
        "accelerate",
        "acl",
        "analytics",
        "attributes",
        "cors",
        "encryption",
        "inventory",
        "legal-hold",
        "lifecycle",
        "location",
        "logging",
        "metrics",
        "notification",
        "object-lock",
        "ownershipControls",
        "policy",
        "policyStatus",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "restore",
        "retention",
        "select",
        "tagging",
        "torrent",
        "uploads",
        "versionId",
        "versioning",
        "versions",
        "website",
    }
)
"""Query keys that make another operation, with a permission of its own, of a read or write."""
S3_ALSO_PLAIN = frozenset({"uploads"})
"""On a key, this one begins an upload."""

EC2_MADE = {
    "CreateFleet": ("fleet",),
    "CreateLaunchTemplate": ("launch-template",),
    "CreateSecurityGroup": ("security-group", "vpc"),
    "RunInstances": ("instance", "volume", "network-interface", "subnet", "security-group", "image"),
}
"""What a call makes, or makes things with; the first names carry the tags that the call gives."""
EC2_TAGGED = frozenset({"fleet", "instance", "launch-template", "security-group", "volume"})

REFUSALS = {"ec2": ("UnauthorizedOperation", 403), "ssm": ("AccessDeniedException", 400)}
"""Code and status with which a service refuses; the others: AccessDenied, 403."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An instance, as the policies see it."""

    instance: str
    region: str
    role: str
    """Name of its role."""
    policies: tuple[str, ...]
    """The role's policy documents."""

    @property
    def arn(self) -> str:
        """The instance's ARN."""
        return f"arn:aws:ec2:{self.region}:{ACCOUNT}:instance/{self.instance}"

    @property
    def context(self) -> dict[str, Sequence[str]]:
        """What every request with its credentials carries."""
        return {
            "ec2:sourceinstancearn": (self.arn,),
            "aws:principalaccount": (ACCOUNT,),
            "aws:principalarn": (f"arn:aws:iam::{ACCOUNT}:role/{self.role}",),
        }


def refusal(call: Call, caller: Caller, tags_of: TagsOf) -> str | None:
    """Why the instance may not make this call, in AWS's words; None: it may."""
    for request in requests(call, caller.context, tags_of):
        if request.action in ALWAYS:
            continue
        decision = decide(caller.policies, request)
        if decision != "allowed":
            because = {
                "denied": "with an explicit deny in an identity-based policy",
                "not allowed": f"because no identity-based policy allows the {request.action} action",
            }[decision]
            who = f"arn:aws:sts::{ACCOUNT}:assumed-role/{caller.role}/{caller.instance}"
            return (
                f"User: {who} is not authorized to perform: {request.action} on resource: {request.resource} {because}"
            )
    return None


def requests(call: Call, context: Context, tags_of: TagsOf) -> Iterator[Request]:
    """All that must be allowed for one call."""
    if call.service == "s3":
        yield _s3(call, context)
    elif call.service == "sqs":
        yield _sqs(call, context)
    elif call.service == "ssm":
        yield from _ssm(call, context, tags_of)
    elif call.service == "ec2":
        yield from _ec2(call, context, tags_of)
    else:
        yield Request(f"{call.service}:{call.operation}", "*", context)


def _s3(call: Call, context: Context) -> Request:
    """By path: the emulator has no hosts of buckets."""
    parts = urlsplit(call.text)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}" if bucket else "*"
    if call.operation == "DeleteObjects":
        arn += "/*"  # the keys are in the body: whoever may delete some only deletes them one by one
    special = (S3_SUBRESOURCES - (S3_ALSO_PLAIN if key else frozenset())) & query.keys()
    if special:
        what = "".join(part.title() for part in min(special).split("-"))
        return Request(f"s3:{call.operation.removesuffix('V2')}{what}", arn, context)
    action = S3_ACTIONS.get(call.operation, call.operation)
    if action == "ListBucket" and "prefix" in query:
        context = {**context, "s3:prefix": query["prefix"]}
    return Request(f"s3:{action}", arn, context)


def _sqs(call: Call, context: Context) -> Request:
    parameters = call.parameters()
    url = str(parameters.get("QueueUrl", ""))
    account, name = urlsplit(url).path.strip("/").rpartition("/")[::2] if url else (ACCOUNT, "")
    name = name or str(parameters.get("QueueName", "*"))
    arn = f"arn:aws:sqs:{call.region}:{account}:{name}"
    return Request(f"sqs:{call.operation.removesuffix('Batch')}", arn, context)


def _ssm(call: Call, context: Context, tags_of: TagsOf) -> Iterator[Request]:
    parameters = call.parameters()
    names = parameters.get("Names") or [
        parameters.get("Name") or parameters.get("Path") or parameters.get("ResourceId")
    ]
    given = {str(tag.get("Key")): str(tag.get("Value")) for tag in parameters.get("Tags") or ()}
    for requested in names:
        if requested is None:
            yield Request(f"ssm:{call.operation}", "*", {**context, **_given(given)})
            continue
        name = parameter_name(str(requested))
        arn = f"arn:aws:ssm:{call.region}:{ACCOUNT}:parameter/{name.removeprefix('/')}"
        tags = tags_of("ssm", name)
        carried = {
            f"{prefix}:resourcetag/{key}".lower(): (value,) for key, value in tags.items() for prefix in ("ssm", "aws")
        }
        yield Request(f"ssm:{call.operation}", arn, {**context, **carried, **_given(given)})


def parameter_name(requested: str) -> str:
    """A parameter's name, without the ARN before it and the version or label behind it."""
    if requested.startswith("arn:"):
        path = requested.split(":", 5)[5].removeprefix("parameter")
        requested = path if "/" in path[1:] else path.removeprefix("/")
    return requested.split(":", 1)[0]


def _ec2(call: Call, context: Context, tags_of: TagsOf) -> Iterator[Request]:
    action = f"ec2:{call.operation}"
    form = call.form()
    ids = [
        value
        for key, value in form.items()
        if re.fullmatch(r"(InstanceId|VolumeId|ResourceId|LaunchTemplateId)(\.\d+)?", key)
    ]
    if call.operation in EC2_MADE:
        for kind in EC2_MADE[call.operation]:
            given = _given(_tag_specification(form, kind)) if kind in EC2_TAGGED else {}
            yield Request(action, _ec2_arn(call.region, kind, "*"), {**context, **given})
        yield from _passed_role(form, context)
    elif ids and not call.operation.startswith(("Describe", "Get")):
        given = _given(
            {
                form[key]: form.get(key.replace("Key", "Value"), "")
                for key in form
                if re.fullmatch(r"Tag\.\d+\.Key", key)
            }
        )
        for found in ids:
            kind = {"i": "instance", "lt": "launch-template", "sg": "security-group", "vol": "volume"}.get(
                found.partition("-")[0], "resource"
            )
            carried = {
                f"{prefix}:resourcetag/{key}".lower(): (value,)
                for key, value in tags_of("ec2", found).items()
                for prefix in ("ec2", "aws")
            }
            yield Request(action, _ec2_arn(call.region, kind, found), {**context, **carried, **given})
    else:
        yield Request(action, "*", context)


def _ec2_arn(region: str, kind: str, name: str) -> str:
    return f"arn:aws:ec2:{region}:{'' if kind == 'image' else ACCOUNT}:{kind}/{name}"


def _passed_role(form: Mapping[str, str], context: Context) -> Iterator[Request]:
    """Who launches with a profile passes its role. Role and profile have one name in the account's template."""
    profile = form.get("IamInstanceProfile.Name") or form.get("IamInstanceProfile.Arn", "").rpartition("/")[2]
    if profile:
        passed = {**context, "iam:passedtoservice": ("ec2.amazonaws.com",)}
        yield Request("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{profile}", passed)


def _tag_specification(form: Mapping[str, str], kind: str) -> dict[str, str]:
    """The tags that a call gives to what it makes of one kind."""
    given: dict[str, Any] = {}
    for key, value in form.items():
        if re.fullmatch(r"TagSpecification\.\d+\.ResourceType", key) and value == kind:
            prefix = key.removesuffix("ResourceType") + "Tag."
            keys = [name for name in form if name.startswith(prefix) and name.endswith(".Key")]
            given |= {form[name]: form.get(name.removesuffix("Key") + "Value", "") for name in keys}
    return given


def _given(tags: Tags) -> dict[str, Sequence[str]]:
    if not tags:
        return {}
    return {"aws:tagkeys": tuple(tags), **{f"aws:requesttag/{key}".lower(): (value,) for key, value in tags.items()}}
