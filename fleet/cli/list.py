"""`fleet list`: the runs that go on, and what those that are over have left."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from fleet.cli.account import account_option, asking_prefect, json_option, regions_option, the_account
from fleet.cli.run import quiet_prefect
from fleet.cli.table import counted, table

if TYPE_CHECKING:
    from fleet.reaper.overview import RunRow


@click.command("list")
@regions_option
@account_option
@json_option
def list_runs(regions: tuple[str, ...], account: str, as_json: bool) -> None:
    """List the runs that go on: who started them, how far they are, their instances; and those that have left something in AWS."""
    quiet_prefect()
    the_account(account)
    with asking_prefect():
        rows, blind = _look(account, list(regions))
    if as_json:
        click.echo(json.dumps({"runs": [dataclasses.asdict(row) for row in rows], "unseen": blind}, indent=2))
        return
    if rows:
        head = ("run", "name", "state", "owner", "since", "instances", "progress")
        click.echo(table(head, [_cells(row) for row in rows]))
    else:
        click.echo("no run goes on, and none has left anything")
    for row in rows:
        if row.controller == "gone":
            click.echo(
                f"note: {row.run[:8]} has left {counted(row.things)}: {row.why}. `fleet reap` removes it", err=True
            )
    for what in blind:
        click.echo(f"note: not looked at: {what}", err=True)


def _look(account: str, regions: list[str]) -> tuple[list[RunRow], list[str]]:
    """The rows, and what couldn't be looked at."""
    import time

    from fleet.aws.failures import AwsRefused
    from fleet.reaper.overview import overview
    from fleet.reaper.ownership import survey
    from fleet.reaper.runs import PrefectRuns
    from fleet.reaper.verdict import Patience
    from flows.reap import looked_at

    runs = PrefectRuns()
    active = runs.active()
    try:
        seen = looked_at(account, regions).look()
    except AwsRefused as refused:  # Prefect's half is worth a lot by itself
        found, blind = None, [str(refused)]
    else:
        # A person wants to know of a dead controller as soon as its lock says so.
        found = survey(seen, runs, Patience.of(0), now=time.time(), account=account)
        blind = list(seen.unseen)
    return overview(found, active, runs.progress([run.id for run in active])), blind


def _cells(row: RunRow) -> tuple[str, ...]:
    state = row.state or "unknown"
    if row.controller == "gone":
        state = f"{state}, controller gone"
    return (
        row.run[:8],
        row.name or "–",
        state,
        row.owner or "–",
        row.since.replace("T", " ").removesuffix("+00:00") or "–",
        counted(row.instances) or "–",
        row.progress or "–",
    )
