"""SSM parameters: their size, how many names a call takes, and who may read one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moto.ssm.exceptions import ValidationException
from moto.ssm.models import SimpleSystemManagerBackend, ssm_backends

from fleet.local.corrections import replace
from fleet.local.preset import ACCOUNT

TIER_BYTES = {"Standard": 4096, "Advanced": 8192, "Intelligent-Tiering": 8192}
NAMES = 10
TAG = "InstanceArn"
READS = frozenset({"GetParameter", "GetParameters", "GetParametersByPath", "GetParameterHistory"})


def correct_ssm() -> None:
    """Put the corrections in place, once."""

    def put_parameter(self: Any, name: str, description: str, value: str, *others: Any, **named: Any) -> Any:
        """A value above its tier's size is a ValidationException: 4 KB standard (the default), 8 KB advanced."""
        tier = named.get("tier") or "Standard"
        limit = TIER_BYTES.get(tier, TIER_BYTES["Standard"])
        if value and len(value.encode()) > limit:
            raise ValidationException(
                f"{tier} tier parameters support a maximum parameter value of {limit} characters."
                " To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier."
            )
        if tier == "Intelligent-Tiering":
            big = len(value.encode()) > TIER_BYTES["Standard"]
            named["tier"] = "Advanced" if big else "Standard"
        return put(self, name, description, value, *others, **named)

    def get_parameters(self: Any, names: list[str]) -> Any:
        """At most 10 names a call."""
        _check_names(names)
        return get(self, names)

    def delete_parameters(self: Any, names: list[str]) -> Any:
        """At most 10 names a call."""
        _check_names(names)
        return delete(self, names)

    own = replace(
        SimpleSystemManagerBackend,
        put_parameter=put_parameter,
        get_parameters=get_parameters,
        delete_parameters=delete_parameters,
    )
    put, get, delete = own["put_parameter"], own["get_parameters"], own["delete_parameters"]


def _check_names(names: list[str]) -> None:
    if len(names) > NAMES:
        raise ValidationException(
            f"1 validation error detected: Value '[{', '.join(names)}]' at 'names' failed to satisfy constraint: "
            f"Member must have length less than or equal to {NAMES}"
        )


def may_read(operation: str, request: Mapping[str, Any], arn: str, tag_of: Callable[[str], str | None]) -> bool:
    """Whether an instance's role may make this call on SSM; `arn` is the instance's, `tag_of` a parameter's TAG.

    moto knows no tag conditions. The role's policy allows `ssm:GetParameter` where `ssm:resourceTag/InstanceArn` equals
    `${ec2:SourceInstanceARN}` and denies the reads that list. A missing parameter has no tag: denied, not "not found".
    """
    if operation not in READS:
        return True
    return operation == "GetParameter" and tag_of(_name(str(request.get("Name", "")))) == arn


def tag_of(region: str, name: str) -> str | None:
    """The value of TAG on a parameter; None: no such tag, or no such parameter."""
    backend = ssm_backends[ACCOUNT][region]
    if backend.get_parameter(name) is None:
        return None
    tags: dict[str, str] = backend.list_tags_for_resource("Parameter", name)
    return tags.get(TAG)


def _name(requested: str) -> str:
    """Without the ARN before it and the version or label behind it."""
    if requested.startswith("arn:"):
        path = requested.split(":", 5)[5].removeprefix("parameter")
        requested = path if "/" in path[1:] else path.removeprefix("/")
    return requested.split(":", 1)[0]
