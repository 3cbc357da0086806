"""The deployments of `prefect.yaml`, the only definition of them: which a Prefect server lacks or has otherwise, and their making.

Comparing is apart from making: `prefect deploy` makes a new version each time, and sets a schedule back that a person switched on.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from fleet.errors import FleetError

if TYPE_CHECKING:
    from pathlib import Path

    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


LONGEST_S = 900.0
"""Seconds of one deploy: Prefect's client tries a server that doesn't answer for a minute at each of its requests."""


class DeploymentRefused(FleetError):
    """Prefect didn't take a deployment."""

    names: tuple[str, ...]
    why: str

    def message(self) -> str:
        """One line: which, and the last that Prefect said."""
        return f"deployment {', '.join(self.names)} was not made: {self.why}"


def full_name(one: Mapping[str, Any]) -> str:
    """`flow/deployment`, by which Prefect knows it. The flow is imported by the deployment's entrypoint."""
    return f"{_flow(one).name}/{one['name']}"


async def difference(client: PrefectClient, one: Mapping[str, Any]) -> str | None:
    """In which words a deployment isn't as the file has it: empty, there is none; None: it is as it should be."""
    try:
        found = await client.read_deployment_by_name(full_name(one))
    except ObjectNotFound:
        return ""
    return ", ".join(_differing(one, found)) or None


def deploy(definition: Path, names: Sequence[str]) -> None:
    """Make these deployments of the file, or bring them up to it. DeploymentRefused."""
    chosen = [part for name in names for part in ("--name", name)]
    # Elsewhere: Prefect would read settings and a .env file in the folder it runs in.
    with tempfile.TemporaryDirectory() as elsewhere:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "prefect", "--no-prompt", "deploy", *chosen, "--prefect-file", str(definition)],
                cwd=elsewhere,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_S,
            )
        except subprocess.TimeoutExpired as error:
            why = f"`prefect deploy` didn't end within {LONGEST_S:g} s: does the Prefect server answer?"
            raise DeploymentRefused(names=tuple(names), why=why) from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise DeploymentRefused(names=tuple(names), why=lines[-1].strip() if lines else f"exit code {done.returncode}")


async def schedule_switches(client: PrefectClient, one: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each schedule of a deployment is switched on, by its slug; none where there is no deployment."""
    try:
        found = await client.read_deployment_by_name(full_name(one))
    except ObjectNotFound:
        return {}
    return {schedule.slug: schedule.active for schedule in found.schedules if schedule.slug}


async def switch(client: PrefectClient, one: Mapping[str, Any], wanted: Mapping[str, bool]) -> None:
    """Switch schedules on or off again that a deploy set back; those that aren't named stay as they are."""
    if not wanted:
        return
    found = await client.read_deployment_by_name(full_name(one))
    for schedule in found.schedules:
        active = wanted.get(schedule.slug or "", schedule.active)
        if active != schedule.active:
            await client.update_deployment_schedule(found.id, schedule.id, active=active)


def _flow(one: Mapping[str, Any]) -> Any:
    module, _, function = one["entrypoint"].rpartition(".")
    return getattr(importlib.import_module(module), function)


def _differing(one: Mapping[str, Any], found: DeploymentResponse) -> list[str]:
    limit = one.get("concurrency_limit")
    limit = limit if isinstance(limit, dict) else {"limit": limit}
    options = found.concurrency_options
    schedules = {
        schedule.slug: (getattr(schedule.schedule, "cron", None), getattr(schedule.schedule, "timezone", None))
        for schedule in found.schedules
    }
    pairs = {
        "entrypoint": (one["entrypoint"], found.entrypoint),
        "work pool": (one["work_pool"]["name"], found.work_pool_name),
        "description": (_squeezed(one.get("description")), _squeezed(found.description)),
        "tags": (sorted(one.get("tags", [])), sorted(found.tags)),
        "form": (
            parameter_schema(_flow(one)).model_dump(exclude_unset=True),
            found.parameter_openapi_schema,
        ),
        "concurrency": (
            (limit.get("limit"), limit.get("collision_strategy")),
            (
                found.global_concurrency_limit.limit if found.global_concurrency_limit else None,
                options.collision_strategy.value if options else None,
            ),
        ),
        "schedules": (
            {each["slug"]: (each["cron"], each.get("timezone")) for each in one.get("schedules", [])},
            schedules,
        ),
    }
    return [name for name, (ours, theirs) in pairs.items() if ours != theirs]


def _squeezed(text: str | None) -> str:
    return " ".join((text or "").split())
