"""What SSM takes: names, sizes and tiers of parameters, and the form in which secrets are stored. Nothing is asked here.

Sizes and names are checked before anything is created: an instance whose parameter is refused would have been paid for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

from fleet.errors import RequestRefused

Tier = Literal["Standard", "Advanced"]
TIER_BYTES: dict[Tier, int] = {"Standard": 4096, "Advanced": 8192}
"""The most that a parameter of each tier holds. AWS says 4 KB and 8 KB; we count bytes of UTF-8, which is never too few."""

LONGEST_NAME = 1011
"""Characters of a name together with what stands before it in the parameter's ARN (PutParameter, `Name`)."""
DEEPEST = 15
"""Levels of a name (PutParameter: HierarchyLevelLimitExceededException)."""
ACCOUNT_DIGITS = 12
SHOWN = 3
"""Entries that a message names, the largest first."""


class SecretsTooLarge(RequestRefused):
    """Secrets don't fit in one parameter; raised before anything is created. Pass fewer, or shorter ones."""

    what: str
    """`the secrets`, or whose values they are."""
    size: int
    """Bytes of all, as they are stored."""
    limit: int
    largest: dict[str, int]
    """Bytes by name, the largest first; empty where there is but one."""

    def message(self) -> str:
        """One line: the sizes, the largest entries, and what would help."""
        named = ", ".join(f"{name} ({size:,} bytes)" for name, size in self.largest.items())
        shown = f"; the largest: {named}" if named else ""
        text = f"{self.what} take {self.size:,} bytes, an SSM parameter holds {self.limit:,}{shown}"
        if self.limit < self.size <= TIER_BYTES["Advanced"]:
            text += f" (`advanced_parameters` in the Fleet Account block allows {TIER_BYTES['Advanced']:,})"
        return text


def document(values: Mapping[str, str]) -> str:
    """How values are stored: a JSON object, as short as it gets.

    No two opening braces stand side by side in a text: SSM refuses values with `{{…}}`, its sign for a nested parameter.
    """
    text = json.dumps(dict(values), ensure_ascii=False, separators=(",", ":"))
    return text.replace("{{", r"{\u007b")


def values_in(text: str) -> dict[str, str] | None:
    """What `document` stored; None: it is something else."""
    try:
        found = json.loads(text)
    except ValueError:  # it carries the text along, so it mustn't become a cause
        return None
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return found
    return None


def tier_for(values: Mapping[str, str], *, advanced: bool, what: str = "the secrets") -> Tier:
    """The cheapest tier that holds these values: the advanced one, which costs money, only where it is needed and allowed.

    SecretsTooLarge: none does; `what` says whose values they are.
    """
    size = len(document(values).encode())
    if size <= TIER_BYTES["Standard"]:
        return "Standard"
    if advanced and size <= TIER_BYTES["Advanced"]:
        return "Advanced"
    by_size = sorted(((len(value.encode()), name) for name, value in values.items()), reverse=True)
    raise SecretsTooLarge(
        what=what,
        size=size,
        limit=TIER_BYTES["Advanced" if advanced else "Standard"],
        largest={name: size for size, name in by_size[:SHOWN]} if len(by_size) > 1 else {},
    )


def name_problem(name: str, region: str) -> str:
    """Why SSM wouldn't take a parameter of this name; empty: it would."""
    before = f"arn:{_partition(region)}:ssm:{region}:{'0' * ACCOUNT_DIGITS}:parameter"
    length = len(before) + len(name)
    levels = name.count("/")
    if not name.startswith("/"):
        why = "it must begin with a slash"
    elif found := re.search(r"[^A-Za-z0-9_./-]", name):
        why = f"{found[0]!r} is none of letters, digits, `_`, `.`, `-` and the slash"
    elif "//" in name or name.endswith("/"):
        why = "a level of it is empty"
    elif re.match("/(aws|ssm)", name, re.IGNORECASE):
        why = "names that begin with aws or ssm are AWS's own"
    elif levels > DEEPEST:
        why = f"it has {levels} levels, {DEEPEST} are the most"
    elif length > LONGEST_NAME:
        why = f"with the ARN before it, it has {length:,} characters, {LONGEST_NAME:,} are the most"
    else:
        return ""
    return f"SSM takes no parameter named {name}: {why}"


def _partition(region: str) -> str:
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
