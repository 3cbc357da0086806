"""Flow runs as the pool worker watches them: where they stand, and the states it may set. The adapter to Prefect's API."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import Abort, ObjectNotFound, Pause
from prefect.states import Cancelled, Crashed, Scheduled
from prefect.utilities.engine import propose_state

from fleet.evals.progress import INTERRUPTED_STATE
from fleet.pool.verdict import RunPhase, run_phase

PAGE = 200
"""Flow runs a request; the server's own limit."""
AT_WORK = [StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
"""States of flow runs that may have an instance."""


TYPE_LABEL, MARKET_LABEL = "inspect-fleet.instance-type", "inspect-fleet.market"
"""Labels of a flow run: what its instance is."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A flow run, as far as its instance is concerned."""

    id: UUID
    phase: RunPhase
    infrastructure: str | None
    """What it records as its infrastructure."""
    run: FlowRun
    why: str = ""
    """What its state says about itself."""
    since: datetime.datetime | None = None
    """When it came into its state, by Prefect's clock."""


class RunStates:
    """Reads and sets the states of flow runs. httpx errors of Prefect's client come through: ask again at the next look."""

    def __init__(self, client: Callable[[], PrefectClient]) -> None:
        # The worker has a client only between its setup and its end.
        self._client = client

    async def read(self, ids: Sequence[UUID]) -> dict[UUID, RunView]:
        """These flow runs in one request (of `PAGE` each); those that Prefect doesn't know are left out."""
        found: dict[UUID, RunView] = {}
        for start in range(0, len(ids), PAGE):
            wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(ids[start : start + PAGE])))
            runs = await self._client().read_flow_runs(flow_run_filter=wanted, limit=PAGE)
            found |= {run.id: view_of(run) for run in runs}
        return found

    async def at_work(self, pool: str) -> list[RunView]:
        """The flow runs of a work pool that may have an instance."""
        states = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=AT_WORK)))
        named = WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))
        found: list[RunView] = []
        while True:
            page = await self._client().read_flow_runs(
                flow_run_filter=states, work_pool_filter=named, limit=PAGE, offset=len(found)
            )
            found += [view_of(run) for run in page]
            if len(page) < PAGE:
                return found

    async def crash(self, run_id: UUID, why: str, *, interrupted: bool = False) -> bool:
        """Set Crashed with the reason; Cancelled where its end was asked for. Whether it is Crashed by this call.

        A run that its engine has reported as Crashed gets the better reason. `interrupted`: EC2 took its instance, as the
        state's name says then.
        """
        crashed: State = Crashed(message=why, name=INTERRUPTED_STATE if interrupted else "Crashed")
        if (before := await self._crashed(run_id)) is not None:
            if before.message != why:
                await self._client().set_flow_run_state(run_id, crashed, force=True)
            return before.message != why
        state = await self._propose(run_id, crashed)
        if state is not None and state.type == StateType.CANCELLING:
            await self.cancel(run_id, why)
            return False
        return state is not None and state.type == StateType.CRASHED

    async def cancel(self, run_id: UUID, why: str) -> bool:
        """Set Cancelled, also where the engine called its end a crash. Whether it is Cancelled by this call."""
        if await self._crashed(run_id) is not None:
            await self._client().set_flow_run_state(run_id, Cancelled(message=why), force=True)
            return True
        state = await self._propose(run_id, Cancelled(message=why))
        return state is not None and state.type == StateType.CANCELLED

    async def _crashed(self, run_id: UUID) -> State | None:
        """The state of a run that is Crashed."""
        try:
            state = (await self._client().read_flow_run(run_id)).state
        except ObjectNotFound:
            return None
        return state if state is not None and state.type == StateType.CRASHED else None

    async def record(self, run_id: UUID, infrastructure: str) -> None:
        """Write down on the flow run what it runs on; nothing to do for one that is gone."""
        with suppress(ObjectNotFound):
            await self._client().update_flow_run(run_id, infrastructure_pid=infrastructure)

    async def schedule_again(self, run_id: UUID, why: str) -> None:
        """Have a pool worker take up a run that is being submitted still: Prefect itself submits each run once."""
        with suppress(ObjectNotFound):
            if view_of(await self._client().read_flow_run(run_id)).phase is RunPhase.SUBMITTING:
                # By force: the server's rules know no way back from Pending.
                await self._client().set_flow_run_state(run_id, Scheduled(message=why), force=True)

    async def describe(self, run_id: UUID, instance_type: str, market: str) -> None:
        """Write down on the flow run what its instance is, for whoever counts its cost."""
        await self._client().update_flow_run_labels(run_id, {TYPE_LABEL: instance_type, MARKET_LABEL: market})

    async def _propose(self, run_id: UUID, state: State) -> State | None:
        """The state that the server took or kept; None where the run is over, or isn't known any more."""
        try:
            return await propose_state(self._client(), state, flow_run_id=run_id)
        except (Abort, ObjectNotFound):
            return None
        except Pause as pause:
            return pause.state


def view_of(run: FlowRun) -> RunView:
    """The flow run, as far as its instance is concerned."""
    state = run.state
    phase = run_phase(
        state.type.value if state else None,
        (state.name or "") if state else "",
        rescheduled=run.empirical_policy.retry_type != "in_process",
        suspended=bool(state and state.state_details.pause_reschedule),
    )
    return RunView(
        id=run.id,
        phase=phase,
        infrastructure=run.infrastructure_pid,
        run=run,
        why=(state.message or "") if state else "",
        since=state.timestamp if state else None,
    )
