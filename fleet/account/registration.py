"""What a control plane's server is given at each boot: the same as a person's, with the fields of its order's account.

Run as `python -m fleet.services.launcher fleet.account.registration`: the server's address and auth string are in the environment,
and the fields of the account's block in FLEET_ACCOUNT, as JSON. Nothing is made again that is as it should be.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

from prefect.client.orchestration import get_client

from fleet.account.definition import deployments_file
from fleet.account.server import bring_up, differences
from fleet.errors import FleetError


async def register() -> None:
    """Look, and make what is missing or otherwise."""
    account, definition = json.loads(os.environ["FLEET_ACCOUNT"]), deployments_file()
    async with get_client() as client:
        found = await differences(client, account, definition)
        for one in found:
            print(one.line(), flush=True)  # noqa: T201  whoever started this copies it into the log
        await bring_up(client, found, account, definition)


def main(_: Sequence[str]) -> None:
    """Register, or end with one line that says why not."""
    try:
        asyncio.run(register())
    except FleetError as refused:
        raise SystemExit(str(refused)) from None
