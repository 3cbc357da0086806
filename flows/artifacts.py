"""What a person sees of a run in the Prefect UI: a progress bar, the workers' table, the report. Updated in place."""

from __future__ import annotations

import json
from dataclasses import asdict
from uuid import UUID

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from fleet.evals.cost import Estimate
from fleet.evals.progress import Progress
from fleet.evals.report import RunReport


class LiveArtifacts:
    """The artifacts of one run while it is watched; made with the first progress, updated with each later one."""

    def __init__(self) -> None:
        self._bar: UUID | None = None
        self._table: UUID | None = None

    def show(self, progress: Progress) -> None:
        """Bring bar and table up to date."""
        rows = [asdict(row) for row in progress.workers]
        percent = round(100 * progress.fraction, 1)
        if self._bar is None or self._table is None:
            self._bar = _made(create_progress_artifact(percent, key="eval-progress", description=progress.line()))
            self._table = _made(create_table_artifact(rows, key="fleet-workers", description="Instances of this run"))
            return
        with get_client(sync_client=True) as client:
            client.update_artifact(self._bar, ArtifactUpdate(data=percent, description=progress.line()))
            client.update_artifact(self._table, ArtifactUpdate(data=json.dumps(rows)))


def show_estimate(estimate: Estimate) -> None:
    """What the run would cost."""
    create_markdown_artifact(estimate.markdown(), key="cost-estimate", description=estimate.line())


def show_report(report: RunReport) -> None:
    """What the run came to, and its metrics as a table."""
    create_markdown_artifact(report.markdown(), key="eval-report", description=report.why or report.outcome)
    metrics = [
        {"task": one.task, "model": one.model, "scorer": metric.scorer, "metric": metric.name, "value": metric.value}
        for one in report.evals
        for metric in one.metrics
    ]
    if metrics:
        create_table_artifact(metrics, key="eval-metrics", description="Metrics of the merged logs")


def _made(artifact: object) -> UUID:
    if not isinstance(artifact, UUID):
        raise TypeError(f"Prefect answered {type(artifact).__name__} instead of an artifact's id")
    return artifact
