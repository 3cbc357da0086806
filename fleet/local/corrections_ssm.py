"""SSM parameters: their names, sizes and tiers, and how many names a call takes."""

from __future__ import annotations

import re
from typing import Any

from moto.ssm.exceptions import SSMException, ValidationException
from moto.ssm.models import SimpleSystemManagerBackend

from fleet.local.corrections import replace

TIER_BYTES = {"Standard": 4096, "Advanced": 8192, "Intelligent-Tiering": 8192}
NAMES = 10
LONGEST_NAME = 1011
"""Characters of a parameter's ARN."""
DEEPEST = 15


class HierarchyTooDeep(SSMException):
    """More than 15 levels."""

    def __init__(self) -> None:
        super().__init__("HierarchyLevelLimitExceededException", f"A hierarchy can have a maximum of {DEEPEST} levels.")


def correct_ssm() -> None:
    """Put the corrections in place, once."""

    def put_parameter(self: Any, name: str, description: str, value: str, *others: Any, **named: Any) -> Any:
        """Names of AWS's kind; no nested parameters; sizes by tier; and no way back from the advanced tier.

        Without a tier a parameter keeps its own, a new one is standard.
        """
        _check_name(name, self.account_id, self.region_name)
        if value and re.search(r"\{\{.*\}\}", value, re.DOTALL):
            raise ValidationException('Parameter value can\'t nest another parameter. Do not use "{{}}" in the value.')
        before = self._parameters.get(name)
        was = before[-1].tier if before else None
        size = len((value or "").encode())
        tier = named.get("tier") or was or "Standard"
        if tier == "Intelligent-Tiering":
            tier = "Advanced" if was == "Advanced" or size > TIER_BYTES["Standard"] else "Standard"
        overwrite = named["overwrite"] if "overwrite" in named else others[3]
        if was == "Advanced" and tier == "Standard" and overwrite:
            raise ValidationException(
                "This parameter uses the advanced-parameter tier. You can't downgrade a parameter from the "
                "advanced-parameter tier to the standard-parameter tier. If necessary, you can delete the advanced "
                "parameter and recreate it as a standard parameter."
            )
        limit = TIER_BYTES.get(tier, TIER_BYTES["Standard"])
        if size > limit:
            raise ValidationException(
                f"{tier} tier parameters support a maximum parameter value of {limit} characters."
                " To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier."
            )
        return put(self, name, description, value, *others, **{**named, "tier": tier})

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


def _check_name(name: str, account: str, region: str) -> None:
    """The rules of PutParameter for `Name`; moto knows those on `aws` and `ssm`."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+|(/[A-Za-z0-9_.-]+)+", name):
        raise ValidationException(
            "Parameter name must be a fully qualified name. If formed as a path, it can consist of sub-paths divided by "
            "slash symbol; each sub-path can be formed as a mix of letters, numbers and the following 3 symbols .-_"
        )
    if name.count("/") > DEEPEST:
        raise HierarchyTooDeep
    if len(f"arn:aws:ssm:{region}:{account}:parameter/{name.removeprefix('/')}") > LONGEST_NAME:
        raise ValidationException(f"Parameter name: its ARN has more than {LONGEST_NAME} characters")


def _check_names(names: list[str]) -> None:
    if len(names) > NAMES:
        raise ValidationException(
            f"1 validation error detected: Value '[{', '.join(names)}]' at 'names' failed to satisfy constraint: "
            f"Member must have length less than or equal to {NAMES}"
        )
