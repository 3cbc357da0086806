"""The digest of a sample's content: equal in every process and on every machine that holds the same sample.

The id is compared beside it, not in it. Left out or replaced is what differs although the sample is the same: the random
ids of messages, the order of sets, and the folders where the environment, the source and the user's caches lie.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from typing import Any

from inspect_ai.dataset import Sample

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest(sample: Sample) -> str:
    """SHA-256 of the content, first 16 hex digits."""
    content = sample.model_dump(mode="python", exclude={"id"})
    if isinstance(content.get("input"), list):
        content["input"] = [{key: part for key, part in said.items() if key != "id"} for said in content["input"]]
    text = json.dumps(_plain(content), sort_keys=True)
    for place, name in _places():
        text = text.replace(place, name)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _places() -> list[tuple[str, str]]:
    """Folders that lie elsewhere on another machine, the innermost first."""
    found = {os.getcwd(): "<source>", sys.prefix: "<environment>", str(Path.home()): "<home>"}  # noqa: PTH109
    return sorted(
        ((place, name) for place, name in found.items() if len(place) > 1), key=lambda pair: (-len(pair[0]), pair[1])
    )


def _plain(value: Any) -> Any:
    """The value in JSON's own types."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, AbstractSet):
        return sorted((_plain(part) for part in value), key=repr)
    if isinstance(value, (bytes, bytearray)):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="python"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return _ADDRESS.sub("", repr(value))
