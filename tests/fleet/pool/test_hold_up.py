"""Why nobody launches what was asked for, by what Prefect shows."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import Worker, WorkerStatus, WorkPool, WorkQueue
from prefect.states import Scheduled

from fleet.pool.hold_up import hold_up, likely_cause

ONLINE, OFFLINE = WorkerStatus.ONLINE, WorkerStatus.OFFLINE
RAISE = "are at work. Raise it, or wait for other runs"
TAG = "the concurrency limit of the deployment fleet-worker, or of a tag, is reached: raise it, or wait for other runs"

ROWS: list[tuple[str, dict[str, Any], dict[str, Any], list[WorkerStatus], str | None, str]] = [
    ("nothing to be seen", {}, {}, [ONLINE], "Scheduled", ""),
    ("paused", {"is_paused": True}, {}, [], None, "the work pool ec2 is paused: `prefect work-pool resume ec2`"),
    (
        "its queue is paused",
        {},
        {"is_paused": True},
        [ONLINE],
        None,
        "the pool's queue default is paused: `prefect work-queue resume default --pool ec2`",
    ),
    (
        "its worker is gone",
        {"concurrency_limit": 1, "active_slots": 1},
        {},
        [OFFLINE],
        None,
        "no worker of the work pool ec2 is online: start one where it has AWS credentials, `prefect worker start --pool ec2`",
    ),
    (
        "the pool is full",
        {"concurrency_limit": 2, "active_slots": 2},
        {},
        [OFFLINE, ONLINE],
        None,
        f"the concurrency limit of the work pool ec2 is reached: 2 of 2 {RAISE}",
    ),
    ("the pool has room", {"concurrency_limit": 2, "active_slots": 1}, {}, [ONLINE], None, ""),
    (
        "the queue lets nothing through",
        {},
        {"concurrency_limit": 0},
        [ONLINE],
        None,
        f"the concurrency limit of the queue default is reached: 0 of 0 {RAISE}",
    ),
    ("its deployment has a limit", {}, {}, [ONLINE], "AwaitingConcurrencySlot", TAG),
]


@pytest.mark.fault("no-workers")
@pytest.mark.parametrize(
    ("pool", "queue", "workers", "state", "cause"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_the_likeliest_cause_is_named_with_what_helps(
    pool: dict[str, Any], queue: dict[str, Any], workers: list[WorkerStatus], state: str | None, cause: str
) -> None:
    found = likely_cause(
        state,
        WorkPool(name="ec2", type="ec2", default_queue_id=uuid4(), **pool),
        WorkQueue(name="default", work_pool_id=uuid4(), **queue),
        [Worker(name="w", work_pool_id=uuid4(), status=status) for status in workers],
    )
    assert found == cause


@pytest.mark.cloud
@pytest.mark.fault("no-workers")
def test_prefect_s_own_answers_say_it(prefect_api: str) -> None:
    name = f"pool-{uuid4().hex[:8]}"
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        flow = client.create_flow_from_name(name)
        deployment = client.create_deployment(flow, name, work_pool_name=name)
        run = client.create_flow_run_from_deployment(deployment, state=Scheduled())
        assert hold_up(run.id).startswith(f"no worker of the work pool {name} is online")
        client.send_worker_heartbeat(name, "a worker", heartbeat_interval_seconds=60)
        assert hold_up(run.id) == ""
        client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=0))
        assert hold_up(run.id).startswith(f"the concurrency limit of the work pool {name} is reached: 0 of 0")
        client.update_work_pool(name, WorkPoolUpdate(is_paused=True))
        assert hold_up(run.id) == f"the work pool {name} is paused: `prefect work-pool resume {name}`"
        client.delete_work_pool(name)
        assert "isn't there any more" in hold_up(run.id) or hold_up(run.id) == ""
