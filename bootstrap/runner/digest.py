"""The digest of a sample's content: equal in every process and on every machine that holds the same sample.

The id is compared beside it, not in it. Left out or replaced is what differs although the sample is the same: the random
ids of messages, the order of sets, and the folders where the environment, the source and the user's caches lie. The home
folder itself is content: a sample that speaks of `/root` must not change where that is somebody's home.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from typing import Any

from inspect_ai.dataset import Sample

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_CACHE = re.compile(r"(?<![\w.~+>-])(?:~|(?:/[\w.@+-]+)+)/(?:\.cache|Library/Caches)(?![\w.-])")
"""Anybody's cache folder, so that a sample that names one is the same whoever's home it is read in."""

# Where they lie by default is below the cache folder: set or not, they get the same name.
_CACHE_VARIABLES = {
    "XDG_CACHE_HOME": "<cache>",
    "HF_HOME": "<cache>/huggingface",
    "HF_HUB_CACHE": "<cache>/huggingface/hub",
    "HF_DATASETS_CACHE": "<cache>/huggingface/datasets",
}


def digest(sample: Sample) -> str:
    """SHA-256 of the content, first 16 hex digits."""
    content = sample.model_dump(mode="python", exclude={"id"})
    if isinstance(content.get("input"), list):
        content["input"] = [{key: part for key, part in said.items() if key != "id"} for said in content["input"]]
    text = json.dumps(_plain(content, _settle()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _settle() -> Callable[[str], str]:
    """What gives folders that lie elsewhere on another machine their name, wherever they stand in a text."""
    home = Path.home()
    found = {str(home / cache): "<cache>" for cache in (".cache", "Library/Caches")}
    found |= {os.environ[variable]: name for variable, name in _CACHE_VARIABLES.items() if os.environ.get(variable)}
    found |= {sys.prefix: "<environment>", os.getcwd(): "<source>"}  # noqa: PTH109
    places = {place.rstrip("/"): name for place, name in found.items() if place.startswith("/") and place.strip("/")}
    innermost_first = "|".join(re.escape(place) for place in sorted(places, key=len, reverse=True))
    # On the boundaries of a path: /data/c is neither in /data/c2 nor in /mnt/data/c.
    known = re.compile(rf"(?<![\w.~-])(?:{innermost_first})(?![\w.-])")

    def settled(text: str) -> str:
        if any(place in text for place in places):  # a picture is a text of megabytes, in which nothing is found
            text = known.sub(lambda met: places[met[0]], text)
        return _CACHE.sub("<cache>", text) if "/.cache" in text or "/Library/Caches" in text else text

    return settled


def _plain(value: Any, settled: Callable[[str], str]) -> Any:
    """The value in JSON's own types, its texts settled."""

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            return settled(value)
        if isinstance(value, Mapping):
            return {settled(key if isinstance(key, str) else repr(key)): plain(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        if isinstance(value, AbstractSet):
            return sorted((plain(part) for part in value), key=repr)
        if isinstance(value, (bytes, bytearray)):
            return hashlib.sha256(value).hexdigest()
        if isinstance(value, PurePath):
            return settled(str(value))
        if hasattr(value, "model_dump"):
            return plain(value.model_dump(mode="python"))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
        return _ADDRESS.sub("", settled(repr(value)))

    return plain(value)
