"""Flow runs and work pools of a Prefect server, as the reaper needs them. The adapter to Prefect's API; its errors come through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling, Crashed

from fleet.evals.progress import WorkerFacts
from fleet.pool import runs as workers_of
from fleet.pool.order import as_uuid
from fleet.pool.runs import PROGRESS_KEY
from fleet.reaper.overview import Progress
from fleet.reaper.ownership import KnownRun
from fleet.reaper.verdict import FINAL

NOT_OVER = [kind for kind in StateType if kind.value not in FINAL]
RUN_EVAL = "run-eval"
"""The flow that makes what is looked for."""
PAGE = 200
"""Of whatever is read, a request; the server's own limit."""


class PrefectRuns:
    """Of the server that the settings name. httpx errors of Prefect's client come through."""

    def read(self, ids: Iterable[str]) -> Mapping[str, KnownRun]:
        """Those of these flow runs that the server knows."""
        wanted = [found for text in ids if (found := as_uuid(text)) is not None]
        with get_client(sync_client=True) as client:
            return {str(run.id): known(run) for run in workers_of.by_id(client, wanted)}

    def active(self) -> list[KnownRun]:
        """The runs of evals that have begun, or are due, and aren't over."""
        named = FlowFilter(name=FlowFilterName(any_=[RUN_EVAL]))
        states = FlowRunFilterState(type=FlowRunFilterStateType(any_=NOT_OVER))
        wanted = FlowRunFilter(state=states)
        found: list[KnownRun] = []
        read, now = 0, datetime.now(UTC)
        with get_client(sync_client=True) as client:
            while True:
                page = client.read_flow_runs(flow_filter=named, flow_run_filter=wanted, limit=PAGE, offset=read)
                read += len(page)
                found += [known(run) for run in page if not is_to_come(run, now)]
                if len(page) < PAGE:
                    return found

    def progress(self, runs: Sequence[str]) -> Mapping[str, Progress]:
        """How far these runs are, of those that have said so."""
        found: dict[str, Progress] = {}
        with get_client(sync_client=True) as client:
            for run in runs:
                said = client.read_artifacts(
                    artifact_filter=ArtifactFilter(
                        key=ArtifactFilterKey(any_=[PROGRESS_KEY]),
                        flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(run)]),
                    ),
                    limit=1,
                )
                if said and isinstance(said[0].data, int | float):
                    found[run] = Progress(float(said[0].data), said[0].description or "")
        return found

    def cancel(self, run: str, why: str) -> None:
        """Ask a run to end, as the button in the UI does."""
        with get_client(sync_client=True) as client, suppress(ObjectNotFound):
            client.set_flow_run_state(UUID(run), Cancelling(message=why))

    def workers(self, run: str) -> list[WorkerFacts]:
        """The workers of a run that aren't over."""
        return _working(run)

    def stop_workers(self, run: str, why: str) -> None:
        """Ask a run's workers to end; their pool worker terminates their instances."""
        workers_of.stop([UUID(fact.run_id) for fact in _working(run)], why=why)

    def pools(self) -> frozenset[str]:
        """The ids of its work pools."""
        found: list[str] = []
        with get_client(sync_client=True) as client:
            while True:
                page = client.read_work_pools(limit=PAGE, offset=len(found))
                found += [str(pool.id) for pool in page]
                if len(page) < PAGE:
                    return frozenset(found)

    def blocks(self, slug: str) -> list[str]:
        """The names of its blocks of the type with this slug."""
        found: list[str] = []
        read = 0
        with get_client(sync_client=True) as client:
            while True:
                try:
                    page = client.read_block_documents_by_type(slug, limit=PAGE, offset=read, include_secrets=False)
                except httpx.HTTPStatusError as error:
                    if error.response.status_code != httpx.codes.NOT_FOUND:
                        raise
                    return []  # the type isn't there before its first block
                read += len(page)
                found += [block.name for block in page if block.name]
                if len(page) < PAGE:
                    return sorted(found)

    def regions(self, *, since: datetime) -> frozenset[str]:
        """The regions that runs of evals have named for their fleets since then."""
        named = FlowFilter(name=FlowFilterName(any_=[RUN_EVAL]))
        recent = FlowRunFilter(expected_start_time=FlowRunFilterExpectedStartTime(after_=since))
        found: set[str] = set()
        read = 0
        with get_client(sync_client=True) as client:
            while True:
                page = client.read_flow_runs(flow_filter=named, flow_run_filter=recent, limit=PAGE, offset=read)
                read += len(page)
                found |= {region for run in page if (region := _region(run))}
                if len(page) < PAGE:
                    return frozenset(found)

    def end(self, run: str, why: str) -> None:
        """Crashed, or Cancelled where that was asked for, with what ran in its process; its workers are asked to end, those not
        launched yet included."""
        run_id = as_uuid(run)
        if run_id is None:
            return
        with get_client(sync_client=True) as client, suppress(ObjectNotFound):
            for each in (client.read_flow_run(run_id), *_subflows(client, run_id)):
                if each.state is not None and each.state.type == StateType.CANCELLING:
                    client.set_flow_run_state(each.id, Cancelled(message=why))
                elif each.state is not None and not each.state.is_final():
                    client.set_flow_run_state(each.id, Crashed(message=why))
        self.stop_workers(run, why)

    def settle(self, run: str, why: str) -> None:
        """The workers' last state, where no pool worker is there to set it."""
        with get_client(sync_client=True) as client:
            for fact in _working(run):
                with suppress(ObjectNotFound):
                    client.set_flow_run_state(UUID(fact.run_id), Cancelled(message=why))


def _subflows(client: SyncPrefectClient, run: UUID) -> list[FlowRun]:
    """What the run's process called and didn't end: it would be shown as Running for ever. Workers have a deployment."""
    inside = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run]),
        deployment_id=FlowRunFilterDeploymentId(is_null_=True),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=NOT_OVER)),
    )
    return client.read_flow_runs(flow_run_filter=inside, limit=PAGE)


def _working(run: str) -> list[WorkerFacts]:
    """The workers of a run that aren't over."""
    return [fact for fact in workers_of.look_at(workers_of.of_run(run)) if not fact.over]


def _region(run: FlowRun) -> str:
    config = run.parameters.get("config")
    return str(config.get("region") or "") if isinstance(config, Mapping) else ""


def known(run: FlowRun) -> KnownRun:
    """A flow run as the verdict needs it. One without a state was made a moment ago, and waits."""
    state = run.state
    since = state.timestamp if state else run.created
    began = run.start_time or run.expected_start_time
    return KnownRun(
        id=str(run.id),
        name=run.name,
        state=state.type.value if state else "SCHEDULED",
        said=(state.name or state.type.value) if state else "new",
        since=since.timestamp() if since else 0.0,
        account=str(run.parameters.get("account") or "default"),
        began=began.timestamp() if began else 0.0,
        begun=run.run_count,
        region=_region(run),
    )


def is_to_come(run: FlowRun, now: datetime) -> bool:
    """Whether it is only planned: Prefect makes the runs of a schedule days ahead, and stopping all means none of those."""
    planned = run.state is not None and run.state.type == StateType.SCHEDULED and not run.run_count
    return planned and run.expected_start_time is not None and run.expected_start_time > now
