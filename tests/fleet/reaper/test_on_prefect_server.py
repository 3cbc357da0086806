"""What the reaper asks of Prefect, on a real server: which accounts it has, and the end of a run that was told to end."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.states import Cancelling, Crashed, Running

from blocks.account import FleetAccount
from fleet.reaper.runs import PrefectRuns

pytestmark = pytest.mark.cloud


@flow(name="run-eval")
def run_eval(account: str = "default", config: dict[str, str] | None = None) -> None:
    """Never called: only its runs count."""


@pytest.fixture
def client(prefect_api: str) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as found:
        yield found


@pytest.fixture
def run(client: SyncPrefectClient) -> Iterator[UUID]:
    """A run of evals that is at work, and gone after the test."""
    made = client.create_flow_run(run_eval, parameters={"account": "staging", "config": {"region": "eu-west-1"}})
    client.set_flow_run_state(made.id, Running())
    yield made.id
    client.delete_flow_run(made.id)


def test_the_accounts_of_a_server_are_found(client: SyncPrefectClient) -> None:
    FleetAccount(bucket="another").save("staging")
    try:
        assert PrefectRuns().blocks(FleetAccount.get_block_type_slug()) == ["default", "staging"]
    finally:
        FleetAccount.delete("staging")
    assert PrefectRuns().blocks("no-such-type") == []


@pytest.mark.fault("leftovers")
def test_a_run_that_was_told_to_end_is_ended_in_the_one_way_that_prefect_takes(
    client: SyncPrefectClient, run: UUID
) -> None:
    """Crashed, which the automation for vanished runs asks for, is refused: such a run would be Cancelling for ever."""
    client.set_flow_run_state(run, Cancelling())
    client.set_flow_run_state(run, Crashed())
    (found,) = [one for one in PrefectRuns().active() if one.id == str(run)]
    assert (found.state, found.account, found.region, found.begun) == ("CANCELLING", "staging", "eu-west-1", 1)
    PrefectRuns().end(str(run), "nobody ends it")
    (state,) = [one.state for one in PrefectRuns().read([str(run)]).values()]
    assert state == "CANCELLED"
