"""The fleet workers of a run, as many as there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling, Completed, Crashed, Failed, Running

from fleet.evals.lock import End
from fleet.pool import runs
from tests.worker_order import ORDER


class Server:
    """Answers a page of what it has, never more than its limit."""

    def __init__(self, workers: list[UUID]) -> None:
        self.workers = workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def read_flow_runs(self, *, limit: int, offset: int, **_: Any) -> list[SimpleNamespace]:
        assert limit <= 200
        return [SimpleNamespace(id=worker) for worker in self.workers[offset : offset + limit]]


@pytest.mark.parametrize("count", [0, 3, runs.PAGE, 2 * runs.PAGE + 1])
def test_every_worker_of_a_run_is_found_however_many(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([uuid4() for _ in range(count)])
    monkeypatch.setattr(runs, "get_client", lambda **_: server)
    assert runs.of_run("run-1") == server.workers


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (Completed(), End.REPORTED),
        (Failed(), End.REPORTED),
        (Crashed(), End.CALLED),
        (Cancelled(), End.CALLED),
        (Running(), End.UNKNOWN),
        (Cancelling(), End.UNKNOWN),
        (None, End.UNKNOWN),
    ],
)
@pytest.mark.fault("second-controller")
def test_a_runs_own_word_for_its_end_is_told_from_others(
    state: State[None] | None, end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = uuid4()

    class Knows(Server):
        def read_flow_run(self, run: UUID) -> SimpleNamespace:
            if run != known:
                raise ObjectNotFound(Exception())
            return SimpleNamespace(state=state)

    monkeypatch.setattr(runs, "get_client", lambda **_: Knows([]))
    assert runs.end_of(str(known)) is end
    assert runs.end_of(str(uuid4())) is End.UNKNOWN, "it may be another server's"
    assert runs.end_of("no id of a flow run") is End.UNKNOWN


def test_a_deployment_that_is_not_there_is_told_with_the_command_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`prefect deploy --all` works in a checkout of this project alone."""

    def run_deployment(*_: object, **__: object) -> None:
        raise ObjectNotFound(Exception())

    monkeypatch.setattr(runs, "run_deployment", run_deployment)
    with pytest.raises(runs.DeploymentAbsent, match=r"fleet-worker/fleet-worker: `fleet setup` makes it"):
        runs.start_worker(ORDER, name="w", key="k", job_variables={}, tags=[])
