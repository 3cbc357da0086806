"""Which flow runs of a Prefect server count as runs that go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import AwaitingRetry, Paused, Pending, Running, Scheduled

from fleet.reaper.runs import is_to_come

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "begun", "due_in", "to_come"),
    [
        (Scheduled(), 0, 3_600, True),
        (Scheduled(), 0, -60, False),
        (AwaitingRetry(), 1, 3_600, False),
        (Pending(), 0, 3_600, False),
        (Running(), 1, -60, False),
        (Paused(), 1, -60, False),
        (None, 0, 3_600, False),
    ],
)
def test_what_a_schedule_has_planned_does_not_go_on_yet(
    state: State[None] | None, begun: int, due_in: float, to_come: bool
) -> None:
    due = NOW + timedelta(seconds=due_in)
    run = FlowRun(flow_id=uuid4(), state=state, run_count=begun, expected_start_time=due)
    assert is_to_come(run, NOW) is to_come
