"""What a Prefect server needs before a run: work pools, the account's block, the deployments of `prefect.yaml`.

Run as `python -m fleet.services.launcher fleet.local.deploy`, with the server's address in the environment. Doing it again
changes nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from prefect.blocks.core import Block
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessWorker

from fleet.local import preset
from fleet.local.template import deployments_file
from fleet.pool.setup import ensure_pool

EC2_POOL = "ec2"
CONTROLLERS_POOL = "controllers"

BLOCK_ROOMS = ("blocks.account", "blocks.secrets", "blocks.scheduled_eval")
"""The modules whose block types a person finds in the UI. Imported by name, as `prefect block register` does it: the room stands
beside this one, not below."""

ACCOUNT_BLOCK = ("fleet-account", "default")

ACCOUNT: Mapping[str, Any] = {
    "region": preset.REGION,
    "bucket": preset.BUCKET,
    "instance_profile": preset.PROFILE,
    "image_parameter": preset.IMAGE_PARAMETER,
}
"""The emulated account, in the block's words."""


async def prepare(client: PrefectClient) -> None:
    """Make pools, block types and the account's block."""
    await ensure_pool(client, EC2_POOL)
    await ensure_controllers(client)
    for room in BLOCK_ROOMS:
        for block in _blocks_of(room):
            await block.aregister_type_and_schema(client=client)
    kind, name = ACCOUNT_BLOCK
    await Block.get_block_class_from_key(kind)(**ACCOUNT).asave(name, overwrite=True, client=client)


async def ensure_controllers(client: PrefectClient) -> None:
    """Make the pool on which `run-eval` and `nightly` run as plain processes beside the pool worker."""
    template = ProcessWorker.get_default_base_job_template()
    # Without a command Prefect starts another interpreter first, to look for requirements of the flow: seconds for nothing.
    template["variables"]["properties"]["command"]["default"] = "python -m prefect.engine"
    pool = WorkPoolCreate(
        name=CONTROLLERS_POOL,
        type=ProcessWorker.type,
        description="Controllers of runs: plain processes beside the pool worker.",
        base_job_template=template,
    )
    try:
        await client.create_work_pool(pool)
    except ObjectAlreadyExists:
        return


def deploy(definition: Path) -> None:
    """Apply the deployments that `definition` holds. CalledProcessError: Prefect refused one; its output says which."""
    names = [one["name"] for one in yaml.safe_load(definition.read_text())["deployments"]]
    chosen = [part for name in names for part in ("--name", name)]
    # Elsewhere: Prefect would read settings and a .env file in the folder it runs in.
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", "deploy", *chosen, "--prefect-file", str(definition)],
            cwd=elsewhere,
            stdout=sys.stderr,  # ours is for the answer that the supervisor waits for
            check=True,
        )


def main(_: Sequence[str]) -> None:
    """Prepare the server that the environment names, and deploy to it."""

    async def prepared() -> None:
        async with get_client() as client:
            await prepare(client)

    asyncio.run(prepared())
    try:
        deploy(deployments_file())
    except subprocess.CalledProcessError as refused:
        raise SystemExit(refused.returncode) from None  # Prefect has said why


def _blocks_of(room: str) -> list[type[Block]]:
    module = importlib.import_module(room)
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Block) and value.__module__ == room
    ]
