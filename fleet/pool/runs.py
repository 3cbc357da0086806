"""The fleet workers of a run as Prefect sees them: start one, look at all, stop some."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling

from fleet.errors import FleetError
from fleet.evals.documents import WorkerOrder
from fleet.evals.lock import End
from fleet.evals.progress import INTERRUPTED_STATE, WorkerFacts, WorkerPhase, worker_phase
from fleet.pool.run_states import MARKET_LABEL, TYPE_LABEL

DEPLOYMENT = "fleet-worker/fleet-worker"
PAGE = 200
"""Flow runs a request; the server's own limit."""
PROGRESS_KEY = "eval-progress"
"""Key of the artifact that a run's controller keeps up to date."""
BETWEEN = " · "
"""In a run's name, between what runs and the name that it was started under."""


class DeploymentAbsent(FleetError):
    """The Prefect server doesn't know the fleet worker."""

    deployment: str

    def message(self) -> str:
        """One line with the command that helps."""
        return f"the Prefect server has no deployment {self.deployment}: `fleet setup` makes it"


def start_worker(
    order: WorkerOrder, *, name: str, key: str, job_variables: Mapping[str, Any], tags: Sequence[str]
) -> UUID:
    """Ask the ec2 pool for one instance that runs `fleet_worker(order)`. The same `key` never starts a second one.

    DeploymentAbsent: nobody deployed the worker.
    """
    try:
        run = cast(
            "FlowRun",
            run_deployment(
                DEPLOYMENT,
                parameters={"order": order.model_dump(mode="json")},
                flow_run_name=name,
                timeout=0,
                tags=list(tags),
                idempotency_key=key,
                job_variables=dict(job_variables),
            ),
        )
    except ObjectNotFound as error:
        raise DeploymentAbsent(deployment=DEPLOYMENT) from error
    return run.id


def look_at(run_ids: Sequence[UUID], *, now: datetime.datetime | None = None) -> list[WorkerFacts]:
    """The facts of these workers, in the order given."""
    if not run_ids:
        return []
    moment = now or datetime.datetime.now(datetime.UTC)
    with get_client(sync_client=True) as client:
        found = {run.id: run for run in by_id(client, run_ids)}
    return [_facts(found[run_id], moment) if run_id in found else _deleted(run_id) for run_id in run_ids]


def of_run(run: str) -> list[UUID]:
    """Every worker that was started for a run, also those whose starter died before it could write them down."""
    tagged = FlowRunFilter(tags=FlowRunFilterTags(all_=[run_tag(run)]))
    found: list[UUID] = []
    with get_client(sync_client=True) as client:
        while True:
            page = client.read_flow_runs(
                flow_run_filter=tagged, sort=FlowRunSort.ID_DESC, limit=PAGE, offset=len(found)
            )
            found += [worker.id for worker in page]
            if len(page) < PAGE:
                return found


def run_tag(run: str) -> str:
    """The Prefect tag of all workers of a run."""
    return f"run:{run}"


def by_id(client: SyncPrefectClient, run_ids: Sequence[UUID]) -> Iterable[FlowRun]:
    """Those of these flow runs that the server knows."""
    for start in range(0, len(run_ids), PAGE):
        page = list(run_ids[start : start + PAGE])
        yield from client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=page)), limit=PAGE)


def _facts(run: FlowRun, now: datetime.datetime) -> WorkerFacts:
    pid = run.infrastructure_pid
    instance = pid.rsplit("::", 1)[-1] if pid else None
    state = run.state
    began = run.created if instance else None
    ended = run.end_time or now
    return WorkerFacts(
        run_id=str(run.id),
        name=run.name,
        phase=worker_phase(state.type.value if state else None, has_instance=instance is not None),
        instance=instance,
        why=(state.message or "") if state else "",
        live_seconds=max(0.0, (ended - began).total_seconds()) if began else 0.0,
        age_seconds=max(0.0, (now - run.created).total_seconds()) if run.created else 0.0,
        instance_type=str(run.labels.get(TYPE_LABEL, "")),
        market=str(run.labels.get(MARKET_LABEL, "")),
        over=state is not None and state.is_final(),
        interrupted=state is not None and state.name == INTERRUPTED_STATE,
    )


def _deleted(run_id: UUID) -> WorkerFacts:
    """A worker whose flow run somebody deleted: the pool worker terminates its instance."""
    return WorkerFacts(
        run_id=str(run_id),
        name=str(run_id)[:8],
        phase=WorkerPhase.LOST,
        instance=None,
        why="its flow run was deleted",
        live_seconds=0.0,
        over=True,
    )


def stop(run_ids: Iterable[UUID], *, why: str) -> None:
    """Ask for the end of these workers; the pool worker terminates their instances at once.

    Those that Prefect doesn't know have ended already.
    """
    with get_client(sync_client=True) as client:
        for run_id in run_ids:
            with suppress(ObjectNotFound):
                client.set_flow_run_state(run_id, Cancelling(message=why))


def is_being_cancelled(run_id: UUID | str) -> bool:
    """Whether somebody asked for the end of this flow run, which may itself be asking."""
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(str(run_id))).state
    return state is not None and state.type in (StateType.CANCELLING, StateType.CANCELLED)


def end_of(run_id: str) -> End:
    """What Prefect knows of the end of a run of evals. Unknown also where it isn't this server's.

    Completed and Failed are a run's own words. Crashed and Cancelled may be others': of the automation that hears no heartbeats
    (`fleet.account.heartbeat`), of a runner that saw the process end, of a person.
    """
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run_id)).state
    except (ObjectNotFound, ValueError):
        return End.UNKNOWN
    if state is None or not state.is_final():
        return End.UNKNOWN
    return End.REPORTED if state.type in (StateType.COMPLETED, StateType.FAILED) else End.CALLED
