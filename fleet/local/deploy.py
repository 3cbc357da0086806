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

from fleet.account.definition import deployments_file, wanted_deployments
from fleet.account.deployments import DeploymentRefused, full_name, schedule_switches, switch
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
    """Make pools, block types, the account's block, the automation and the deployments.

    Schedules that are new sleep: what a local cloud holds ends with it, and a person who looks at its UI sees their own runs.
    """
    definition = deployments_file()
    wanted = await differences(client, ACCOUNT, definition)
    new = {one.name for one in wanted if one.kind == "deployment" and one.missing}
    await bring_up(client, wanted, ACCOUNT, definition)
    for one in wanted_deployments(definition):
        if full_name(one) in new:
            await switch(client, one, dict.fromkeys(await schedule_switches(client, one), False))


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
