"""`fleet reap`: remove what no live run owns, once a person has seen what that is."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.account import account_option, asking_prefect, json_option, regions_option, the_account
from fleet.cli.display import printable
from fleet.cli.run import quiet_prefect
from fleet.cli.table import counted
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from fleet.reaper.report import ReapReport, ReapRow

GRACE_MINUTES = 30.0


class NobodyToAsk(RequestRefused):
    """Something would be removed, and there is no terminal to ask at."""

    things: int

    def message(self) -> str:
        """One line, with the ways out."""
        return f"{self.things} things wait for a yes, and there is nobody to ask: pass --yes (--dry-run shows them)"


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--now", "at_once", is_flag=True, help="Remove at the first look, without marking and waiting for another one."
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@regions_option
@account_option
@json_option
def reap(dry_run: bool, at_once: bool, yes: bool, regions: tuple[str, ...], account: str, as_json: bool) -> int:
    """Remove instances, queues, secrets and locks that no live run owns.

    What is found is marked, and removed by a look half an hour later: this command again, or the flow `reap`, which runs each
    hour. Nothing is touched that belongs to a run whose controller lives.
    """
    quiet_prefect()
    the_account(account)
    grace = 0.0 if at_once else GRACE_MINUTES
    with asking_prefect():
        plan = _plan(account, list(regions), grace)
        doing = plan.count("to remove") + plan.count("to end") + plan.count("to mark")
        if dry_run or not (doing or plan.count("to unmark")):
            _tell(plan, as_json=as_json)
            return 0
        if doing:  # a mark that is taken off what lives needs nobody's yes
            _show(plan, to_stderr=True)
            _approve(doing, yes=yes)
        report = _carry_out(account, list(regions), grace)
    _tell(report, as_json=as_json)
    return report.exit_code


def _plan(account: str, regions: list[str], grace: float) -> ReapReport:
    import time

    from fleet.cli.display import display_for
    from fleet.reaper.ownership import survey
    from fleet.reaper.report import report_of
    from fleet.reaper.runs import PrefectRuns
    from fleet.reaper.verdict import Patience
    from flows.reap import looked_at

    with display_for() as display:
        display.stage("Looking")
        seen = looked_at(account, regions).look()
        return report_of(survey(seen, PrefectRuns(), Patience.of(60 * grace), now=time.time(), account=account), None)


def _carry_out(account: str, regions: list[str], grace: float) -> ReapReport:
    """As the flow, so that the UI has it too. It looks again: what a person took their time over may live by now."""
    from fleet.cli.display import display_for
    from fleet.reaper.report import ReapReport
    from flows.reap import reap as flow

    with display_for() as display:
        display.stage("Removing")
        state: Any = flow(account, regions or None, dry_run=False, grace_minutes=grace, return_state=True)
    report: Any = state.result(raise_on_failure=False)
    if not isinstance(report, ReapReport):
        raise report
    return report


def _approve(things: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise NobodyToAsk(things=things)
    click.confirm("Do this?", abort=True, err=True)


def _tell(report: ReapReport, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.model_dump(mode="json"), indent=2))
        return
    _show(report, to_stderr=False)
    click.echo(report.line())
    for row in report.left:
        click.echo(f"left behind: {row.what}{f' in {row.region}' if row.region else ''}: {row.left}", err=True)


def _show(report: ReapReport, *, to_stderr: bool) -> None:
    """Run by run: what is done with each thing and why; of what is kept only the count, since a fleet has hundreds of things."""
    runs: dict[tuple[str, ...], list[ReapRow]] = {}
    for row in report.rows:
        run = f"{row.run_name or row.run[:8] or 'no run'}{f' ({row.owner})' if row.owner else ''}"
        runs.setdefault((row.done, run, row.why), []).append(row)
    for (done, run, why), rows in runs.items():
        kept = f" {counted(Counter(row.kind for row in rows))}" if done == "kept" else ""
        click.echo(printable(f"{done}{kept}, of {run}: {why}"), err=to_stderr)
        for row in rows if not kept else ():
            click.echo(printable(f"  {', '.join(filter(None, (row.what, row.region)))}"), err=to_stderr)
    for what in report.unseen:
        click.echo(f"note: not looked at: {what}", err=True)
