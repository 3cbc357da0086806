"""`fleet setup`: the account and the Prefect server that evals need, made, brought up to date, or only looked at."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.account import prefect_api
from fleet.cli.arguments import pairs
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.account.change import AccountChange
    from fleet.account.findings import Finding
    from fleet.account.stack import AccountStack, StackState
    from fleet.aws.session import Aws

INCOMPLETE = 3
DEFAULT_REGION = "us-east-1"


class NobodyToAsk(RequestRefused):
    """Something would change, and there is no terminal to ask at."""

    changes: int

    def message(self) -> str:
        """One line, with the way out."""
        return f"{self.changes} changes wait for a yes, and there is nobody to ask: pass --yes"


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; say what is missing and why it matters (exit code 3).")
@click.option("--yes", is_flag=True, help="Change without asking.")
@click.option("--region", help="Region of the account's stack; by default AWS's own setting, else us-east-1.")
@click.option("--stack", "stack_name", default="inspect-fleet", show_default=True, help="Name of the stack.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the account's template: Prefix, VpcId, Subnets, AlarmEmail, MonthlyBudget, … Kept until it is "
    "given again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def setup(check: bool, yes: bool, region: str | None, stack_name: str, params: Sequence[str], as_json: bool) -> int:
    """Create or update what evals need: one CloudFormation stack, and pools, blocks and deployments in Prefect.

    All changes are shown before any is made. Doing it again changes nothing.
    """
    from fleet.account.stack import AccountStack
    from fleet.account.template import chosen_parameters
    from fleet.aws.session import Aws

    chosen = chosen_parameters(pairs("--param", params))
    aws = Aws(region or _own_region())
    stack = AccountStack(aws, stack_name, say=_say)
    if check:
        return _check(aws, stack, as_json=as_json)
    return _change(aws, stack, chosen, yes=yes, as_json=as_json)


def _check(aws: Aws, stack: AccountStack, *, as_json: bool) -> int:
    from fleet.account.check import block_values, check_account, check_server, no_server
    from fleet.account.commands import setup_command
    from fleet.account.definition import deployments_file
    from fleet.account.findings import to_mend

    state = stack.state()
    found = check_account(aws, state)
    url = prefect_api()
    if url:
        from fleet.account.change import server

        async def looked() -> list[Finding]:
            async with server(url) as client:
                values = block_values(aws.region, state)
                return await check_server(client, values, deployments_file(), setup_command(aws.region, state.name))

        found += asyncio.run(looked())
    else:
        found.append(no_server(aws.region, state))
    bad = to_mend(found)
    if as_json:
        click.echo(json.dumps({"well": not bad, "findings": [dataclasses.asdict(one) for one in found]}))
    else:
        for one in found:
            click.echo(one.line())
        unknown = sum(one.status == "unknown" for one in found)
        rest = f"; {unknown} could not be looked at" if unknown else ""
        click.echo(
            f"\n{len(bad)} of {len(found)} to mend{rest}" if bad else f"\nall is as it should be{rest}", err=True
        )
    return INCOMPLETE if bad else 0


def _change(aws: Aws, stack: AccountStack, chosen: Mapping[str, str], *, yes: bool, as_json: bool) -> int:
    from fleet.account.change import AccountChange, change_server, expected_values, look_at_server, plan_stack
    from fleet.account.check import block_values
    from fleet.account.consequences import consequences
    from fleet.account.definition import deployments_file
    from fleet.account.stack import wanted_parameters
    from fleet.cli.control_plane import give_order

    url, definition = prefect_api(), deployments_file()
    state, plan, unmended = plan_stack(aws, stack, chosen)
    carried = False
    try:
        values = expected_values(aws, state, chosen)
        wanted, idle = asyncio.run(look_at_server(url, values, definition)) if url else ((), [])
        warnings = consequences(state.parameters, wanted_parameters(state, chosen), plan.resources)
        change = AccountChange(state, plan, wanted, tuple(unmended), warnings)
        if not change.empty:
            _show(change, to_stderr=as_json)
            _approve(len(change.lines()), yes=yes)
        carried = True
    finally:
        if not carried:  # refused, declined or interrupted
            stack.drop(plan)
    if not plan.empty:
        state = stack.carry_out(plan)
    if url and not change.empty:
        values = block_values(aws.region, state)
        wanted, idle = asyncio.run(look_at_server(url, values, definition))
        asyncio.run(change_server(url, wanted, values, definition))
    has_plane = state.has_control_plane
    plane = give_order(aws, state.outputs, block_values(aws.region, state)) if has_plane else []
    notes = [*plane, *_notes(url, idle, unmended, aws.region, state)]
    document: dict[str, Any] = {
        "region": aws.region,
        "stack": stack.name,
        "status": state.status,
        "outputs": dict(state.outputs),
        "changed": not change.empty,
        "changes": change.lines(),
        "warnings": list(change.warnings),
        "notes": notes,
    }
    _tell(document, as_json=as_json)
    return INCOMPLETE if unmended or not (url or has_plane) else 0


def _show(change: AccountChange, *, to_stderr: bool) -> None:
    for line in change.lines():
        click.echo(line, err=to_stderr)
    for warning in change.warnings:
        click.echo(f"! {warning}", err=to_stderr)


def _approve(changes: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise NobodyToAsk(changes=changes)
    click.confirm("Change this?", abort=True, err=True)


def _notes(
    url: str | None, idle: Sequence[str], unmended: Sequence[Finding], region: str, state: StackState
) -> list[str]:
    from fleet.account.commands import setup_command
    from fleet.aws.commands import aws_command

    again = setup_command(region, state.name)
    delete = aws_command(region, "cloudformation", "delete-stack", "--stack-name", state.name)
    notes = [
        f"{one.what}: {one.detail}; {one.why}. CloudFormation offers no change that mends it: delete the stack, whose bucket "
        f"stays (`{delete}`), and run `{again}` again"
        for one in unmended
    ]
    if not url and not state.has_control_plane:  # a control plane makes them itself, at each boot
        plane = setup_command(region, state.name, "--param", "ControlPlane=running")
        notes.append(
            "no Prefect API is configured, so pools, blocks and deployments were left: set PREFECT_API_URL (`prefect cloud login` "
            f"does) and run `{again}` again, or add a control plane (docs/control-plane.md): `{plane}`"
        )
    notes += [
        f"no pool worker serves {pool}: start one where it has AWS credentials, `prefect worker start --pool {pool}`"
        for pool in idle
    ]
    return notes


def _tell(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document))
        return
    name, region = document["stack"], document["region"]
    said = "is up to date" if document["changed"] else "nothing was changed: there is nothing to change"
    click.echo(f"stack {name} in {region} ({document['status']}): {said}")
    for note in document["notes"]:
        click.echo(f"note: {note}", err=True)


def _own_region() -> str:
    import boto3

    return boto3.Session().region_name or DEFAULT_REGION


def _say(line: str) -> None:
    click.echo(f"  {line}", err=True)
