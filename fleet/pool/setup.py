"""The work pool itself: made, or brought up to this version's job variables."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import WorkPool
from prefect.exceptions import ObjectNotFound

from fleet.errors import FleetError, RequestRefused
from fleet.pool.worker import EC2Worker


class PoolTypeMismatch(FleetError):
    """A work pool of this name is of another type."""

    name: str
    type: str

    def message(self) -> str:
        """One line, with the ways out."""
        return (
            f"work pool {self.name} is of type {self.type}, not ec2: use another name, or delete it "
            f"(`prefect work-pool delete {self.name}`)"
        )


class JobVariableUnknown(RequestRefused):
    """A default was given for job variables that pools of this type don't have."""

    names: tuple[str, ...]

    def message(self) -> str:
        """One line: which."""
        return f"work pools of type ec2 have no job variable {', '.join(self.names)}"


def base_job_template(defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The template of this version, with other defaults for some job variables. JobVariableUnknown."""
    template = copy.deepcopy(EC2Worker.get_default_base_job_template())
    variables = template["variables"]["properties"]
    if unknown := tuple(sorted((defaults or {}).keys() - variables.keys())):
        raise JobVariableUnknown(names=unknown)
    for name, value in (defaults or {}).items():
        variables[name]["default"] = value
    return template


async def ensure_pool(client: PrefectClient, name: str, *, defaults: Mapping[str, Any] | None = None) -> WorkPool:
    """The work pool `name`, made if there is none. Its template becomes this version's, since Prefect freezes the template
    into the pool when it is made; whether it is paused, its limit and its description stay.

    PoolTypeMismatch: there is one of another type.
    """
    template = base_job_template(defaults)
    try:
        pool = await client.read_work_pool(name)
    except ObjectNotFound:
        return await client.create_work_pool(WorkPoolCreate(name=name, type=EC2Worker.type, base_job_template=template))
    if pool.type != EC2Worker.type:
        raise PoolTypeMismatch(name=name, type=pool.type)
    await client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))
    return await client.read_work_pool(name)
