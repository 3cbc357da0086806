"""The flow `reap`: what it decides is tests/fleet/reaper; here, what it shows, and how it ends."""

from __future__ import annotations

import dataclasses
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.client.schemas.objects import State

from blocks.account import FleetAccount
from fleet.aws.failures import AwsRefused
from fleet.reaper.holdings import AwsHoldings
from fleet.reaper.report import ReapReport
from fleet.reaper.runs import PrefectRuns
from flows import reap as room
from tests.fleet.reaper.kit import Account, Server, everything_of, known


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[dict[str, str]], str]]:
    """The artifacts that were made: rows and description."""
    made: list[tuple[list[dict[str, str]], str]] = []
    monkeypatch.setattr(
        room, "create_table_artifact", lambda table, key, description: made.append((table, description))
    )
    monkeypatch.setattr(room, "get_run_logger", lambda: logging.getLogger("reap"))
    for step in ("look", "carry_out"):  # as functions: no server keeps task runs here
        monkeypatch.setattr(room, step, getattr(room, step).fn)
    return made


def reaped(monkeypatch: pytest.MonkeyPatch, account: Account, server: Server, **how: Any) -> State[ReapReport]:
    monkeypatch.setattr(room, "looked_at", lambda account_name, regions: account)
    monkeypatch.setattr(room, "PrefectRuns", lambda: server)
    state: State[ReapReport] = room.reap.fn(**{"account": "default", **how})
    return state


def old(run: str) -> Account:
    """Things of a run that is over, whose lock expired in the last century."""
    things = [dataclasses.replace(one, expires=1.0 if one.kind == "lock" else None) for one in everything_of(run)]
    return Account.of(things)


def test_a_dry_run_shows_and_touches_nothing(
    monkeypatch: pytest.MonkeyPatch, tables: list[tuple[list[dict[str, str]], str]]
) -> None:
    account = old("r1")
    state = reaped(monkeypatch, account, Server.with_states(r1="CRASHED"), dry_run=True, grace_minutes=0)
    assert (state.name, state.message, account.touched) == ("Completed", "dry run: 6 to remove", [])
    ((rows, description),) = tables
    assert description == "dry run: 6 to remove"
    assert {row["decided"] for row in rows} == {"to remove"}
    assert {row["run"] for row in rows} == {"name of r1"}


def test_what_is_removed_is_shown_with_why(
    monkeypatch: pytest.MonkeyPatch, tables: list[tuple[list[dict[str, str]], str]]
) -> None:
    account = old("r1")
    state = reaped(monkeypatch, account, Server.with_states(r1="CRASHED"), grace_minutes=0)
    assert (state.name, state.message, account.things) == ("Completed", "6 removed", {})
    ((rows, _),) = tables
    assert all("its flow run is Crashed" in row["why"] for row in rows)


def test_where_something_is_left_the_flow_run_is_failed_and_says_what(
    monkeypatch: pytest.MonkeyPatch, tables: list[tuple[list[dict[str, str]], str]]
) -> None:
    account = old("r1")
    account.refuses = {"/inspect-fleet/instances/r1/i-r1"}
    state = reaped(monkeypatch, account, Server.with_states(r1="CRASHED"), grace_minutes=0)
    assert (state.name, state.message) == ("Failed", "2 left, 4 removed")
    ((rows, _),) = tables
    assert [row["what"] for row in rows if row["decided"] == "left"] == [
        "lock p/evals/r1/lock.json",
        "parameter /inspect-fleet/instances/r1/i-r1",
    ]


def test_a_run_that_nobody_ends_is_ended_and_shown(
    monkeypatch: pytest.MonkeyPatch, tables: list[tuple[list[dict[str, str]], str]]
) -> None:
    server = Server({"r1": known("r1", "CANCELLING", since=1.0)})
    state = reaped(monkeypatch, Account.of([]), server, dry_run=True)
    assert (state.message, server.ended) == ("dry run: 1 to end", [])
    state = reaped(monkeypatch, Account.of([]), server)
    assert (state.name, state.message, server.ended) == ("Completed", "1 ended", ["r1"])
    assert tables[-1][0][0]["what"] == "flow run r1"


def test_each_account_of_the_server_is_reaped_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch, tables: list[tuple[list[dict[str, str]], str]]
) -> None:
    """One that can't be looked at is named; the others are reaped, and the flow run says at its end that not all were."""
    places = {"default": old("r1"), "staging": old("r2")}

    def looked_at(name: str, regions: list[str]) -> Account:
        if name == "broken":
            raise AwsRefused(service="s3", operation="List", target="bucket", code="AccessDenied", why="no")
        return places[name]

    server = Server({"r1": known("r1", "CRASHED"), "r2": known("r2", "CRASHED", account="staging")})
    server.blocks = lambda slug: ["broken", "default", "staging"]  # type: ignore[attr-defined]
    monkeypatch.setattr(room, "looked_at", looked_at)
    monkeypatch.setattr(room, "PrefectRuns", lambda: server)
    state: State[ReapReport] = room.reap.fn(grace_minutes=0)
    assert [account.things for account in places.values()] == [{}, {}]
    assert state.name == "Failed"
    assert (state.message or "").startswith("12 removed; not reaped: account broken: ")
    assert len(tables[-1][0]) == 12

    server.blocks = lambda slug: []  # type: ignore[attr-defined]
    with pytest.raises(room.NoAccount):
        room.reap.fn()


def test_all_regions_are_looked_at_in_which_runs_had_fleets(monkeypatch: pytest.MonkeyPatch) -> None:
    home = SimpleNamespace(region="us-east-1", site=lambda region: SimpleNamespace(region=region))
    monkeypatch.setattr(FleetAccount, "load", lambda name: home)
    monkeypatch.setattr(PrefectRuns, "regions", lambda self, since: frozenset({"us-east-1", "eu-west-1"}))

    def regions(*chosen: str) -> list[str]:
        holdings = room.looked_at("default", list(chosen))
        assert isinstance(holdings, AwsHoldings)
        return list(holdings._sites)

    assert regions() == ["us-east-1", "eu-west-1"]
    assert regions("ap-south-1") == ["ap-south-1"]
