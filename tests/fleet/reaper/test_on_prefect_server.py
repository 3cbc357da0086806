"""What the reaper asks of Prefect, on a real server: which accounts it has, and the end of a run that was told to end."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.states import Cancelling, Completed, Crashed, Running

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


@task
def called_in() -> None:
    """Where a run calls what runs in its process."""


@flow(name="launch-fleet")
def a_step() -> None:
    """Never called either."""


@pytest.mark.fault("leftovers")
def test_what_ran_in_the_process_of_a_run_is_ended_with_it(client: SyncPrefectClient, run: UUID) -> None:
    """Prefect hears of no end of a subflow whose process was killed; a run of a deployment has a process of its own."""
    caller = client.create_task_run(called_in, flow_run_id=run, dynamic_key="0")
    inside, over = (client.create_flow_run(a_step, parent_task_run_id=caller.id).id for _ in range(2))
    client.set_flow_run_state(inside, Running())
    client.set_flow_run_state(over, Completed())
    deployment = client.create_deployment(flow_id=client.create_flow(a_step), name="elsewhere")
    elsewhere = client.create_flow_run_from_deployment(deployment, parent_task_run_id=caller.id).id
    PrefectRuns().end(str(run), "its process is gone")
    states = [client.read_flow_run(each).state for each in (inside, over, elsewhere)]
    assert [state and state.type.value for state in states] == ["CRASHED", "COMPLETED", "SCHEDULED"]
