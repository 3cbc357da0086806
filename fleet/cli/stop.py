"""`fleet stop`: cancel runs, and see their instances go."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleet.cli.account import asking_prefect, json_option
from fleet.cli.run import quiet_prefect
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from fleet.reaper.ownership import KnownRun
    from fleet.reaper.stopping import Stopped

INCOMPLETE = 3
WHY = "stopped by `fleet stop`"


class NothingNamed(RequestRefused):
    """Neither a run nor all of them."""

    def message(self) -> str:
        """One line, with the ways out."""
        return "which run? Write the beginning of its id or name (`fleet list` shows them), or --all"


class NobodyToAsk(RequestRefused):
    """All runs would be stopped, and there is no terminal to ask at."""

    runs: str

    def message(self) -> str:
        """One line, with the way out."""
        return f"stopping {self.runs} waits for a yes, and there is nobody to ask: pass --yes"


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--all", "everything", is_flag=True, help="Every run that goes on.")
@click.option("--yes", is_flag=True, help="Don't ask, with --all.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=180.0, show_default=True, help="Seconds to wait for the end."
)
@json_option
def stop(runs: tuple[str, ...], everything: bool, yes: bool, wait: float, as_json: bool) -> int:
    """Cancel RUNs, by the beginning of their id or name, and wait until their instances are gone.

    Results are kept: the same request goes on from them.
    """
    if not runs and not everything:
        raise NothingNamed()
    quiet_prefect()
    with asking_prefect():
        from fleet.reaper.runs import PrefectRuns

        meant = _meant(runs, PrefectRuns().active(), everything=everything)
        if everything and meant and not yes:
            _approve(meant)
        stopped = _stop_all(meant, wait)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in stopped], indent=2))
    else:
        _tell(stopped)
    return 0 if all(one.over for one in stopped) else INCOMPLETE


def _meant(asked: Sequence[str], active: Sequence[KnownRun], *, everything: bool) -> list[KnownRun]:
    from fleet.reaper.stopping import chosen

    return list(active) if everything else chosen(asked, active)


def _approve(meant: Sequence[KnownRun]) -> None:
    from fleet.reaper.stopping import short

    named = ", ".join(short(run) for run in meant)
    if not sys.stdin.isatty():
        raise NobodyToAsk(runs=named)
    click.confirm(f"Stop {named}?", abort=True, err=True)


def _stop_all(meant: Sequence[KnownRun], wait: float) -> list[Stopped]:
    """All at the same time: each waits for its own instances."""
    from concurrent.futures import ThreadPoolExecutor

    from fleet.cli.display import display_for
    from fleet.reaper.runs import PrefectRuns
    from fleet.reaper.stopping import stop as stop_one

    with display_for() as display, ThreadPoolExecutor(max(1, len(meant))) as threads:
        asked = [
            threads.submit(stop_one, run, PrefectRuns(), why=WHY, patience=wait, say=display.stage) for run in meant
        ]
        return [one.result() for one in asked]


def _tell(stopped: Sequence[Stopped]) -> None:
    if not stopped:
        click.echo("nothing runs")
    for one in stopped:
        ended = (
            f"is {one.state}, and its instances are gone"
            if one.over
            else f"is {one.state}, and not all of it has ended"
        )
        click.echo(f"{one.run[:8]} ({one.name}) {ended}")
        for what in one.left:
            click.echo(f"left behind: {what}", err=True)
    if stopped:
        click.echo("results so far are kept: the same request goes on from them", err=True)
