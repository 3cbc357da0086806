"""What a fleet worker is told, with nothing in it that a test would have to care for."""

from __future__ import annotations

from fleet.evals.documents import EnvironmentSpec, WorkerOrder

ORDER = WorkerOrder(
    run="run",
    region="us-east-1",
    bucket="bucket",
    prefix="fleet",
    eval_ids=[],
    environment=EnvironmentSpec(python="3.11", lock=""),
    work_queue="queue://work",
    events_queue="queue://events",
    secrets_parameter="",
)
