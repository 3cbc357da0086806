"""The id of an eval set: by it a repeated request finds what Hawk has of it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fleet.evals.plan import NEUTRAL_EVAL_KEYS, NEUTRAL_GENERATE_KEYS, slug

LONGEST = 43
"""Characters of an id: Hawk makes names of Kubernetes of it."""

RESERVED = "imported-"
"""How an id can't begin: those are eval sets that were imported into Hawk."""

_DIGEST = 16
_NO_PART = NEUTRAL_EVAL_KEYS | NEUTRAL_GENERATE_KEYS | {"tags", "metadata", "runner", "retry_attempts"}
"""Keys of a configuration that don't decide what is evaluated: the same as for a fleet's eval ids."""


def eval_set_id(task: str, config: Mapping[str, Any], nonce: str = "") -> str:
    """The id of the eval set with this configuration. `task`: what a person knows it by; `nonce` makes an id of its own."""
    decides = {key: value for key, value in config.items() if key not in _NO_PART}
    told = [{**decides, "packages": sorted(config.get("packages", ()))}, nonce]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:_DIGEST]
    name = slug(task)
    if f"{name}-".startswith(RESERVED):
        name = f"task-{name}"
    return f"{name[: LONGEST - _DIGEST - 1].rstrip('-')}-{digest}"
