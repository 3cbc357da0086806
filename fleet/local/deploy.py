"""What the local cloud's Prefect server is given: the same as a person's, with the emulated account's names.

Run as `python -m fleet.services.launcher fleet.local.deploy`, with the server's address in the environment. Doing it again
changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from prefect.client.orchestration import PrefectClient, get_client

from fleet.account.definition import deployments_file
from fleet.account.deployments import DeploymentRefused
from fleet.account.server import bring_up, differences
from fleet.local import preset

ACCOUNT: Mapping[str, Any] = {
    "region": preset.REGION,
    "bucket": preset.BUCKET,
    "instance_profile": preset.PROFILE,
    "image_parameter": preset.IMAGE_PARAMETER,
    "registry_login": "optional",
}
"""The emulated account, in the block's words."""


async def prepare(client: PrefectClient) -> None:
    """Make pools, block types, the account's block and the deployments."""
    definition = deployments_file()
    await bring_up(client, await differences(client, ACCOUNT, definition), ACCOUNT, definition)


def main(_: Sequence[str]) -> None:
    """Prepare the server that the environment names."""

    async def prepared() -> None:
        async with get_client() as client:
            await prepare(client)

    try:
        asyncio.run(prepared())
    except DeploymentRefused as refused:
        sys.stderr.write(f"{refused}\n")
        raise SystemExit(1) from None
