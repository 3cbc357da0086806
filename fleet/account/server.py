"""What a Prefect server needs before a run: work pools, block types, the account's block, deployments, an automation.

`differences` looks and changes nothing; `bring_up` makes what they name. Both serve `fleet setup`, on a person's server, and the
local cloud on its own. Rooms above this one (blocks, flows) are imported by name, as Prefect itself does it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prefect.blocks.core import Block
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import WorkerStatus
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from fleet.account import deployments, heartbeat
from fleet.account.definition import wanted_deployments
from fleet.pool.setup import PoolTypeMismatch, base_job_template, ensure_pool
from fleet.pool.worker import EC2Worker

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

EC2_POOL = "ec2"
CONTROLLERS_POOL = "controllers"
POOLS: Mapping[str, str] = {EC2_POOL: EC2Worker.type, CONTROLLERS_POOL: ProcessWorker.type}

BLOCK_ROOMS = ("blocks.account", "blocks.secrets", "blocks.scheduled_eval", "blocks.hawk")
"""The modules whose block types a person finds in the UI."""

ACCOUNT_BLOCK = ("fleet-account", "default")

Kind = Literal["work pool", "block type", "block", "deployment", "automation"]

MATTERS: Mapping[Kind, str] = {
    "work pool": "no run can be sent to it",
    "block type": "its form is missing from the UI, or an old one",
    "block": "runs don't know which bucket, profile and network are theirs",
    "deployment": "it can't be started from the UI, by schedule, or at its present form",
    "automation": "a run whose process was killed is shown as Running for ever",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the server lacks, or has otherwise."""

    kind: Kind
    name: str
    detail: str = ""
    """What differs; empty: it isn't there."""

    @property
    def missing(self) -> bool:
        """Whether it isn't there at all."""
        return not self.detail

    def line(self) -> str:
        """As a person reads it."""
        return f"{'+' if self.missing else '~'} {self.kind} {self.name}{f': {self.detail}' if self.detail else ''}"

    def why(self) -> str:
        """Why it matters."""
        return MATTERS[self.kind]


async def differences(client: PrefectClient, account: Mapping[str, Any], definition: Path) -> list[Difference]:
    """All that isn't as it should be. `account`: values of the account's block that are known; others stay as they are.

    PoolTypeMismatch: a pool of another type has one of our names.
    """
    found = [await _pool(client, name) for name in POOLS]
    found += [await _block_type(client, block) for block in block_types()]
    found.append(await _account(client, account))
    for one in wanted_deployments(definition):
        differing = await deployments.difference(client, one)
        if differing is not None:
            found.append(Difference("deployment", deployments.full_name(one), differing))
    if (differing := await heartbeat.difference(client)) is not None:
        found.append(Difference("automation", heartbeat.NAME, differing))
    return [one for one in found if one is not None]


async def bring_up(
    client: PrefectClient, wanted: Iterable[Difference], account: Mapping[str, Any], definition: Path
) -> None:
    """Make everything that is named. DeploymentRefused."""
    named = {(one.kind, one.name) for one in wanted}
    if ("work pool", EC2_POOL) in named:
        await ensure_pool(client, EC2_POOL)
    if ("work pool", CONTROLLERS_POOL) in named:
        await ensure_controllers(client)
    for block in block_types():
        if ("block type", block.get_block_type_slug()) in named:
            await block.aregister_type_and_schema(client=client)
    if ("block", "/".join(ACCOUNT_BLOCK)) in named:
        await _save_account(client, account)
    chosen = [one for one in wanted_deployments(definition) if ("deployment", deployments.full_name(one)) in named]
    if chosen:
        switches = [(one, await deployments.schedule_switches(client, one)) for one in chosen]
        deployments.deploy(definition, [one["name"] for one in chosen])
        for one, before in switches:
            await deployments.switch(client, one, before)
    if ("automation", heartbeat.NAME) in named:
        await heartbeat.ensure(client)


async def idle_pools(client: PrefectClient) -> list[str]:
    """Our pools for which no pool worker asks: runs sent there wait for one."""
    idle = []
    for name in POOLS:
        try:
            workers = await client.read_workers_for_work_pool(name)
        except ObjectNotFound:
            continue  # named as missing
        if not any(worker.status == WorkerStatus.ONLINE for worker in workers):
            idle.append(name)
    return idle


async def ensure_controllers(client: PrefectClient) -> None:
    """Make the pool on which `run-eval` and `nightly` run as plain processes beside the pool worker, or update its template."""
    template = _template(CONTROLLERS_POOL)
    try:
        await client.read_work_pool(CONTROLLERS_POOL)
    except ObjectNotFound:
        description = "Controllers of runs: plain processes beside the pool worker."
        pool = WorkPoolCreate(
            name=CONTROLLERS_POOL, type=ProcessWorker.type, description=description, base_job_template=template
        )
        await client.create_work_pool(pool)
    else:
        await client.update_work_pool(CONTROLLERS_POOL, WorkPoolUpdate(base_job_template=template))


def block_types() -> Sequence[type[Block]]:
    """Every block type of `BLOCK_ROOMS`."""
    return [
        value
        for room in BLOCK_ROOMS
        for value in vars(importlib.import_module(room)).values()
        if isinstance(value, type) and issubclass(value, Block) and value.__module__ == room
    ]


def _template(pool: str) -> dict[str, Any]:
    if pool == EC2_POOL:
        return base_job_template()
    template: dict[str, Any] = ProcessWorker.get_default_base_job_template()
    # Without a command Prefect starts another interpreter first, to look for requirements of the flow: seconds for nothing.
    template["variables"]["properties"]["command"]["default"] = "python -m prefect.engine"
    return template


async def _pool(client: PrefectClient, name: str) -> Difference | None:
    try:
        pool = await client.read_work_pool(name)
    except ObjectNotFound:
        return Difference("work pool", name)
    if pool.type != POOLS[name]:
        raise PoolTypeMismatch(name=name, type=pool.type)
    wanted = _template(name)
    if pool.base_job_template == wanted:
        return None
    ours, theirs = (
        template.get("variables", {}).get("properties", {}) for template in (wanted, pool.base_job_template)
    )
    differing = sorted(one for one in ours.keys() | theirs.keys() if ours.get(one) != theirs.get(one))
    return Difference("work pool", name, f"job variables {', '.join(differing)}" if differing else "its job template")


async def _block_type(client: PrefectClient, block: type[Block]) -> Difference | None:
    slug = block.get_block_type_slug()
    try:
        await client.read_block_type_by_slug(slug)
    except ObjectNotFound:
        return Difference("block type", slug)
    try:
        await client.read_block_schema_by_checksum(
            block._calculate_schema_checksum(),  # noqa: SLF001, Prefect's own way to name a form
            version=block.get_block_schema_version(),
        )
    except ObjectNotFound:
        return Difference("block type", slug, "its form")
    return None


async def _account(client: PrefectClient, account: Mapping[str, Any]) -> Difference | None:
    kind, name = ACCOUNT_BLOCK
    known = await _read_account(client)
    if known is None:
        return Difference("block", f"{kind}/{name}")
    changed = [
        f"{key} {known.get(key)!r} becomes {value!r}" for key, value in account.items() if known.get(key) != value
    ]
    return Difference("block", f"{kind}/{name}", ", ".join(changed)) if changed else None


async def _read_account(client: PrefectClient) -> dict[str, Any] | None:
    """The fields of the account's block with its defaults; None: there is none."""
    kind, name = ACCOUNT_BLOCK
    try:
        found = await client.read_block_document_by_name(name, kind)
    except ObjectNotFound:
        return None
    fields = Block.get_block_class_from_key(kind).model_fields
    return {key: field.get_default(call_default_factory=True) for key, field in fields.items()} | found.data


async def _save_account(client: PrefectClient, account: Mapping[str, Any]) -> None:
    kind, name = ACCOUNT_BLOCK
    block = Block.get_block_class_from_key(kind)
    known = await _read_account(client) or {}
    kept = {key: value for key, value in known.items() if key in block.model_fields}
    await block(**{**kept, **account}).asave(name, overwrite=True, client=client)
