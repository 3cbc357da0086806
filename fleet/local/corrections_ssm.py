"""SSM parameters: their size, and how many names a call takes."""

from __future__ import annotations

from typing import Any

from moto.ssm.exceptions import ValidationException
from moto.ssm.models import SimpleSystemManagerBackend

from fleet.local.corrections import replace

TIER_BYTES = {"Standard": 4096, "Advanced": 8192, "Intelligent-Tiering": 8192}
NAMES = 10


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
