"""What a person sees of a run in the Prefect UI: a progress bar, a table of what is at work, the report. Updated in place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from uuid import UUID

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from fleet.evals.cost import Estimate
from fleet.evals.listener import Seen
from fleet.evals.progress import Progress, WorkerRow
from fleet.evals.report import RunReport
from fleet.pool.runs import PROGRESS_KEY

LINKS = 24
"""Workers that the table's description links to; the cells of a table can't hold links."""


class LiveArtifacts:
    """The artifacts of one run while it is watched; made with the first progress, updated with each that differs.

    `table`: key of the table.
    """

    def __init__(self, table: str = "fleet-workers") -> None:
        self._key = table
        self._bar: UUID | None = None
        self._table: UUID | None = None
        self._shown: tuple[object, ...] = ()

    def show(self, progress: Progress) -> None:
        """Bring bar and table up to date: a row for each instance."""
        rows = [cells(row) for row in progress.workers]
        self.bring_up_to_date(progress, rows, about=links(progress.workers))

    def bring_up_to_date(self, progress: Seen, rows: Sequence[Mapping[str, object]], *, about: str) -> None:
        """The bar by `progress`, the table by `rows`, with `about` (Markdown) above it."""
        percent, line = round(100 * progress.fraction, 1), progress.line()
        table = [dict(row) for row in rows]
        if self._bar is None or self._table is None:
            self._bar = _made(create_progress_artifact(percent, key=PROGRESS_KEY, description=line))
            self._table = _made(create_table_artifact(table, key=self._key, description=about))
            return
        new = (percent, line, table)
        if new == self._shown:
            return
        with get_client(sync_client=True) as client:
            client.update_artifact(self._bar, ArtifactUpdate(data=percent, description=line))
            client.update_artifact(self._table, ArtifactUpdate(data=json.dumps(table), description=about))
        self._shown = new


def show_estimate(estimate: Estimate) -> None:
    """What the run would cost."""
    create_markdown_artifact(estimate.markdown(), key="cost-estimate", description=estimate.line())


def show_report(report: RunReport, below: str) -> None:
    """What the run came to, with more Markdown `below`, such as its instances, and its metrics as a table."""
    create_markdown_artifact(f"{report.markdown()}\n{below}", key="eval-report", description=report.line())
    metrics = [
        {"task": one.task, "model": one.model, "scorer": metric.scorer, "metric": metric.name, "value": metric.value}
        for one in report.evals
        for metric in one.metrics
    ]
    if metrics:
        create_table_artifact(metrics, key="eval-metrics", description="Metrics of the logs")


def cells(row: WorkerRow) -> dict[str, object]:
    """A line of the workers' table."""
    return {
        "worker": worker(row),
        "instance": row.instance or "–",
        "state": row.phase,
        "jobs": row.jobs,
        "samples": row.samples,
        "errors": row.errors,
        "busy": row.slots,
        "minutes": row.minutes,
        "why": row.why,
    }


def links(workers: Sequence[WorkerRow]) -> str:
    """Where each worker's steps and logs are, as Markdown."""
    shown = " · ".join(link(row) for row in workers[:LINKS])
    return f"Instances of this run. Steps and logs of each: {shown}{' …' if len(workers) > LINKS else ''}"


def instances(workers: Sequence[WorkerRow]) -> str:
    """The instances of a run that is over, as a Markdown table that links to their flow runs."""
    if not workers:
        return ""
    rows = [
        f"| {link(row)} | {row.instance or '–'} | {row.phase} | {row.jobs} | {row.samples} | {row.minutes} | "
        f"{' '.join(row.why.replace('|', '/').split())} |"
        for row in workers
    ]
    head = [
        "### Instances",
        "",
        "| worker | instance | state | jobs | samples | minutes | why |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


def link(row: WorkerRow) -> str:
    """A link to a worker's flow run. Relative: a server's address is another for each who looks, and each UI has its own path."""
    return f"[{worker(row)}](../../runs/flow-run/{row.run})"


def worker(row: WorkerRow) -> str:
    """A worker's name within its run."""
    return row.name.partition(" of ")[0]


def _made(artifact: object) -> UUID:
    if not isinstance(artifact, UUID):
        raise TypeError(f"Prefect answered {type(artifact).__name__} instead of an artifact's id")
    return artifact
