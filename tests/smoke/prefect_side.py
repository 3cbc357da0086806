"""The smoke test's runs as Prefect knows them: which flow run is ours, which of its instances is at work."""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterName,
)
from prefect.client.schemas.sorting import FlowRunSort

from fleet.pool.run_states import MARKET_LABEL
from fleet.pool.runs import run_tag

LATEST = 20
"""Runs that are looked through for ours: it was started moments ago."""


def run_with_tag(tag: str) -> str | None:
    """The flow run whose request carries this tag; None: it isn't there yet."""
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=["run-eval"])),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=LATEST,
        )
    for run in found:
        request = run.parameters.get("request")
        if isinstance(request, dict) and tag in request.get("tags", []):
            return str(run.id)
    return None


def end_of(run: str, instance: str) -> tuple[str, str]:
    """Type and message of the state of an instance's flow run; empty: Prefect knows none."""
    with get_client(sync_client=True) as client:
        for worker in client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[run_tag(run)]))):
            if worker.state and (worker.infrastructure_pid or "").endswith(f"::{instance}"):
                return worker.state.type.value, worker.state.message or ""
    return "", ""


def markets(run: str) -> list[str]:
    """Where the run's instances were bought: spot, on-demand. Prefect keeps it longer than EC2 does its instances."""
    with get_client(sync_client=True) as client:
        workers = client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[run_tag(run)])))
    return sorted({str(worker.labels[MARKET_LABEL]) for worker in workers if MARKET_LABEL in worker.labels})


def instance_at_work(run: str) -> str | None:
    """The id of an instance of this run that takes jobs now; None: there is none yet."""
    with get_client(sync_client=True) as client:
        for worker in client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[run_tag(run)]))):
            tasks = client.read_task_runs(
                flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[worker.id])),
                task_run_filter=TaskRunFilter(name=TaskRunFilterName(any_=["run-jobs"])),
            )
            if worker.infrastructure_pid and any(task.state and task.state.is_running() for task in tasks):
                return worker.infrastructure_pid.rpartition("::")[2]
    return None
