"""Find what no live run owns, and remove it: what controllers and pool workers that were killed have left in AWS."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, cast

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import Field

from blocks.account import FleetAccount, fleet_account
from fleet.errors import FleetError
from fleet.reaper.holdings import AwsHoldings, Holdings
from fleet.reaper.ownership import Runs, Survey, survey
from fleet.reaper.removal import Reaper
from fleet.reaper.report import ReapReport, joined, report_of
from fleet.reaper.runs import PrefectRuns
from fleet.reaper.verdict import Patience

DAYS = 15
"""Fleets of so many days are looked for: an instance lives for a day at most, a queue's messages for two weeks."""
ROWS = 500
"""Of the table in the UI, at most."""


class NoAccount(FleetError):
    """There is nothing to look at."""

    def message(self) -> str:
        """One line, with the command that helps."""
        return "this Prefect server has no Fleet Account block: `fleet setup` makes it"


@flow(name="reap", persist_result=False)
def reap(
    account: str | None = None,
    regions: list[str] | None = None,
    dry_run: bool = False,
    grace_minutes: Annotated[float, Field(ge=0)] = 30,
) -> State[ReapReport]:
    """Remove instances, queues, secrets and locks that no live run owns.

    Nothing is touched that lacks this project's tags, or belongs to a run whose controller lives. Nothing is removed where
    Prefect doesn't answer. What is found is marked, and removed by a later run of this flow, when it is still nobody's. An account
    that can't be looked at is named, and keeps the others from nothing; then the flow run is Failed.

    Args:
        account: Name of the Fleet Account block; none: each that this Prefect server has.
        regions: Where to look; none: the account's own region, and where its runs have had fleets.
        dry_run: Say what would be done, and do nothing.
        grace_minutes: From the first look that finds a thing to be nobody's to its removal; 0: at once.
    """
    patience = Patience.of(60 * grace_minutes)
    if account is None:
        report = reap_each(accounts(), regions or [], patience, dry_run=dry_run)
    else:
        report = reap_one(account, regions or [], patience, dry_run=dry_run)
    show(report)
    if report.left or report.failed:
        return cast("State[ReapReport]", Failed(message=report.line(), data=report))
    return cast("State[ReapReport]", Completed(message=report.line(), data=report))


def accounts() -> list[str]:
    """The Fleet Account blocks of this server. NoAccount: there is none."""
    found = PrefectRuns().blocks(FleetAccount.get_block_type_slug())
    if not found:
        raise NoAccount()
    return found


def reap_each(accounts: Sequence[str], regions: list[str], patience: Patience, *, dry_run: bool) -> ReapReport:
    """One account after the other, whatever becomes of another."""
    reports: list[ReapReport] = []
    failed: list[str] = []
    for account in accounts:
        try:
            reports.append(reap_one(account, regions, patience, dry_run=dry_run))
        except Exception as error:  # noqa: BLE001 - a block may be wrong in any way; the other accounts have their turn
            get_run_logger().error("Account %s can't be reaped: %s", account, error)
            failed.append(f"account {account}: {error}")
    return joined(reports, failed)


def reap_one(account: str, regions: list[str], patience: Patience, *, dry_run: bool) -> ReapReport:
    """One account."""
    holdings, runs = looked_at(account, regions), PrefectRuns()
    found = look(holdings, runs, patience, account)
    return report_of(found, None) if dry_run else carry_out(Reaper(holdings, runs, patience), found)


def looked_at(account: str, regions: list[str]) -> Holdings:
    """What the account holds, in these regions or in those where its runs have had fleets."""
    home = fleet_account(account)
    since = datetime.now(UTC) - timedelta(days=DAYS)
    chosen = regions or [home.region, *sorted(PrefectRuns().regions(since=since) - {home.region})]
    return AwsHoldings([home.site(region) for region in chosen])


@task(name="look", task_run_name="look: {account}", cache_policy=NO_CACHE)
def look(holdings: Holdings, runs: Runs, patience: Patience, account: str) -> Survey:
    """Everything there is, whose it is, and what becomes of it."""
    seen = holdings.look()
    for what in seen.unseen:
        get_run_logger().warning("Not looked at: %s", what)
    return survey(seen, runs, patience, now=datetime.now(UTC).timestamp(), account=account)


@task(name="remove", task_run_name="remove", cache_policy=NO_CACHE)
def carry_out(reaper: Reaper, found: Survey) -> ReapReport:
    """Mark, remove, and see that it is gone; end the runs that nobody ends any more."""
    return report_of(found, reaper.carry_out(found), reaper.end_unheeded(found))


def show(report: ReapReport) -> None:
    """For the UI: a table, and a line of the log for whatever is more than kept."""
    log = get_run_logger()
    log.info("%s", report.line())
    for row in report.rows:
        if row.done == "left":
            log.warning("%s is left: %s", row.what, row.left)
        elif row.done != "kept":
            log.info("%s: %s (%s)", row.done, row.what, row.why)
    table = [
        {
            "what": row.what,
            "decided": row.done,
            "why": row.left or row.why,
            "run": row.run_name or row.run or "–",
            "owner": row.owner or "–",
            "region": row.region or "–",
        }
        for row in report.rows[:ROWS]
    ]
    create_table_artifact(table, key="reap", description=report.line())
