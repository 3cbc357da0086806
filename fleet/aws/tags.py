"""Tags as EC2 takes them on an instance that may read its own by its metadata service.

Such an instance's tag keys are parts of an address: EC2 refuses a launch with a space or a slash in one of them. The rules are
those of "Tag restrictions" and of "Access to tags in instance metadata" in EC2's user guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_TAGS = 50
"""On one resource, without AWS's own."""
KEY_CHARACTERS = 128
VALUE_CHARACTERS = 256
RESERVED_KEYS = frozenset({".", "..", "_index"})
"""Keys that mean something in the metadata service's addresses."""
AWS_PREFIX = "aws:"
"""Keys that begin so, in whatever case, are AWS's own."""

_NOT_IN_KEYS = re.compile(r"[^0-9A-Za-z\-_+=,.@:]")
_NOT_IN_VALUES = re.compile(r"[^\w\s+\-=.:/@]")


def key_of(text: str) -> str:
    """The key nearest to `text`: a slash becomes a colon, whatever else can't stand there a hyphen."""
    key = _NOT_IN_KEYS.sub("-", text.replace("/", ":"))[:KEY_CHARACTERS]
    if not key or key in RESERVED_KEYS or key.lower().startswith(AWS_PREFIX):
        return f"-{key}"[:KEY_CHARACTERS]
    return key


def value_of(text: str) -> str:
    """The value nearest to `text`."""
    return _NOT_IN_VALUES.sub("-", text)[:VALUE_CHARACTERS]


def legal_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags as EC2 takes them. Of two keys that become one, the later counts."""
    return {key_of(key): value_of(value) for key, value in tags.items()}
