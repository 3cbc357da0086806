"""Why nobody launches what a run has asked for: what Prefect shows of the work pool, its queue and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import Worker, WorkerStatus, WorkPool, WorkQueue
from prefect.exceptions import ObjectNotFound

AWAITING_SLOT = "AwaitingConcurrencySlot"
"""Prefect's name of the state in which a flow run waits for a concurrency limit of its deployment or a tag."""


def hold_up(run_id: UUID) -> str:
    """The likeliest cause for which this worker isn't launched, with what helps; empty: Prefect shows none."""
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run_id)
        if run.work_pool_name is None:
            return ""
        try:
            pool = client.read_work_pool(run.work_pool_name)
            queue = client.read_work_queue_by_name(run.work_queue_name or "default", run.work_pool_name)
        except ObjectNotFound:
            return f"the work pool {run.work_pool_name}, or its queue, isn't there any more: `fleet setup` makes it"
        workers = client.read_workers_for_work_pool(run.work_pool_name)
    return likely_cause(run.state.name if run.state else None, pool, queue, workers)


def likely_cause(state: str | None, pool: WorkPool, queue: WorkQueue, workers: Sequence[Worker]) -> str:
    """The cause by what Prefect says of a flow run's state, its pool and queue, and the pool's workers; empty: none is seen."""
    if pool.is_paused:
        return f"the work pool {pool.name} is paused: `prefect work-pool resume {pool.name}`"
    if queue.is_paused:
        return f"the pool's queue {queue.name} is paused: `prefect work-queue resume {queue.name} --pool {pool.name}`"
    if not any(worker.status is WorkerStatus.ONLINE for worker in workers):
        return (
            f"no worker of the work pool {pool.name} is online: start one where it has AWS credentials, "
            f"`prefect worker start --pool {pool.name}`"
        )
    for kind, it in (("work pool", pool), ("queue", queue)):
        if it.concurrency_limit is not None and (it.active_slots or 0) >= it.concurrency_limit:
            return (
                f"the concurrency limit of the {kind} {it.name} is reached: {it.active_slots or 0} of {it.concurrency_limit} "
                "are at work. Raise it, or wait for other runs"
            )
    if state == AWAITING_SLOT:
        return "the concurrency limit of the deployment fleet-worker, or of a tag, is reached: raise it, or wait for other runs"
    return ""
