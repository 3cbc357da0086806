"""What `fleet setup` would change in an account and on a Prefect server, shown before anything is, and then carried out.

The stack comes first, since its outputs fill the account's block. Done again, both halves leave alone what is as it should be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.account import resources
from fleet.account.check import block_values, rendering
from fleet.account.findings import Finding, to_mend
from fleet.account.stack import AccountStack, StackPlan, StackState, wanted_parameters
from fleet.aws.identity import caller
from fleet.aws.session import Aws
from fleet.errors import FleetError

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

    from fleet.account.server import Difference


class ServerUnreachable(FleetError):
    """The Prefect API doesn't answer, or not to us."""

    url: str
    why: str

    def message(self) -> str:
        """One line, with what helps."""
        return f"the Prefect API at {self.url} doesn't answer: {self.why}. Look at PREFECT_API_URL and its key or auth string"


@dataclass(frozen=True, slots=True)
class AccountChange:
    """All that would change."""

    state: StackState
    stack: StackPlan
    server: tuple[Difference, ...]
    unmended: tuple[Finding, ...] = ()
    """What is missing in the account, and CloudFormation doesn't make again."""
    warnings: tuple[str, ...] = ()
    """What a person should know before the yes: what it does to evals that run, and to a control plane's history."""

    @property
    def empty(self) -> bool:
        """Whether nothing would change."""
        return self.stack.empty and not self.server

    def lines(self) -> list[str]:
        """One for each change, as a person reads them."""
        name = self.state.name
        lines = []
        if not self.stack.empty:
            lines.append(f"{'+' if self.stack.creates else '~'} stack {name}")
            lines += [f"  {line}" for line in self.stack.parameters]
            lines += [f"  {one.line()}" for one in self.stack.resources]
            if not self.stack.resources and not self.stack.parameters:
                lines.append("  only what the stack says of itself")
        return lines + [one.line() for one in self.server]


def plan_stack(aws: Aws, stack: AccountStack, chosen: Mapping[str, str]) -> tuple[StackState, StackPlan, list[Finding]]:
    """What there is, what would change, and what is missing past CloudFormation. A change set is made where something would."""
    state = stack.state()
    broken: list[Finding] = []
    if state.exists and not state.status.endswith("_IN_PROGRESS"):
        found = resources.look(aws, rendering(caller(aws), aws.region, state), vpc=state.parameters.get("VpcId", ""))
        broken = to_mend(found)
    plan = stack.plan(state, chosen)
    if plan.empty and broken:
        plan = stack.plan(state, chosen, mend=True)
    return state, plan, broken if plan.empty else []


def expected_values(aws: Aws, state: StackState, chosen: Mapping[str, str]) -> dict[str, Any]:
    """What the account's block will say once the stack is there with these parameters."""
    wanted = dataclasses.replace(state, parameters=wanted_parameters(state, chosen))
    rendered = rendering(caller(aws), aws.region, wanted)
    outputs = {
        name: str(rendered.resolve(one["Value"]))
        for name, one in rendered.template["Outputs"].items()
        if rendered.holds(one.get("Condition"))
    }
    return block_values(aws.region, dataclasses.replace(wanted, outputs=outputs))


@asynccontextmanager
async def server(url: str) -> AsyncIterator[PrefectClient]:
    """A client of the Prefect API that the settings name. ServerUnreachable: whatever it, or the way to it, refuses."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError

    try:
        async with get_client() as client:
            yield client
    except PrefectHTTPStatusError as error:
        code = error.response.status_code
        why = "it wants a key, or another one" if code in (401, 403) else f"it answers with status {code}"
        raise ServerUnreachable(url=url, why=why) from error
    except (httpx.HTTPError, OSError) as error:
        raise ServerUnreachable(url=url, why=str(error) or type(error).__name__) from error
    except RuntimeError as error:
        # Prefect's client wraps the failure of its first request.
        if isinstance(error.__cause__, httpx.HTTPError | OSError):
            raise ServerUnreachable(url=url, why=str(error.__cause__) or "no connection") from error
        raise


async def look_at_server(
    url: str, values: Mapping[str, Any], definition: Path
) -> tuple[tuple[Difference, ...], list[str]]:
    """What would change on the server, and the pools that no pool worker serves."""
    from fleet.account.server import differences, idle_pools

    async with server(url) as client:
        return tuple(await differences(client, values, definition)), await idle_pools(client)


async def change_server(url: str, wanted: tuple[Difference, ...], values: Mapping[str, Any], definition: Path) -> None:
    """Carry out the server's half."""
    from fleet.account.server import bring_up

    async with server(url) as client:
        await bring_up(client, wanted, values, definition)
