"""Pools, block types, the account's block and deployments on the server that the environment names.

Run as `python -m fleet.services.launcher fleet.services.registration`, with the block's fields in FLEET_ACCOUNT as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence


def main(_: Sequence[str]) -> None:
    """Make them, or bring them up to this version."""
    deploy = importlib.import_module("fleet.local.deploy")
    deploy.ACCOUNT = {**deploy.ACCOUNT, **json.loads(os.environ.get("FLEET_ACCOUNT") or "{}")}
    deploy.main([])
