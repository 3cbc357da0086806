"""Where the deployments are defined, and what the definition says. Imports no Prefect: the local cloud's supervisor asks too."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml


def deployments_file() -> Path:
    """The file `prefect.yaml`: beside the rooms in a checkout, inside `flows` in an installed package."""
    flows = importlib.util.find_spec("flows")
    if flows is None or flows.origin is None:
        raise LookupError("the room `flows` isn't installed beside `fleet`")
    room = Path(flows.origin).parent
    packed = room / "prefect.yaml"
    return packed if packed.exists() else room.parent / "prefect.yaml"


def wanted_deployments(definition: Path) -> list[dict[str, Any]]:
    """The deployments that the file describes, in its words."""
    found: list[dict[str, Any]] = yaml.safe_load(definition.read_text())["deployments"]
    return found
