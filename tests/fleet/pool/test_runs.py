"""The fleet workers of a run, as many as there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID, uuid4

import pytest

from fleet.pool import runs


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
