"""The runs of a deployment as a person looks for them: those that go on, and those that are over and have left something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from fleet.reaper.ownership import KnownRun, Survey
from fleet.reaper.things import Thing
from fleet.reaper.verdict import Life

Controller = Literal["alive", "gone", "unknown"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, as its controller said last."""

    percent: float
    line: str
    """Samples, instances and cost, in the controller's words."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run."""

    run: str
    name: str
    state: str
    """Prefect's word; empty: it doesn't know the run."""
    owner: str
    since: str
    """When it began (ISO, UTC); empty: nobody says."""
    controller: Controller
    """Whether somebody controls it; unknown: nothing of it is to be seen, or not by us."""
    why: str
    """Why that is thought, where it isn't alive."""
    percent: float | None = None
    progress: str = ""
    instances: Mapping[str, int] = field(default_factory=dict)
    """How many live, by market and type."""
    things: Mapping[str, int] = field(default_factory=dict)
    """What there is of it, by kind."""


def overview(survey: Survey | None, active: Iterable[KnownRun], progress: Mapping[str, Progress]) -> list[RunRow]:
    """A row for each run that goes on or has left something, the oldest first. `survey`: None where AWS couldn't be looked at."""
    runs: dict[str, KnownRun] = {run.id: run for run in active}
    things: dict[str, list[Thing]] = {}
    for thing in survey.seen.things if survey else ():
        if thing.run:
            things.setdefault(thing.run, []).append(thing)
    if survey:
        runs |= {run: survey.runs[run] for run in things if run in survey.runs and run not in runs}
    rows = [_row(run, runs.get(run), things.get(run, []), survey, progress.get(run)) for run in {**runs, **things}]
    return sorted(rows, key=lambda row: (row.since or "9", row.run))


def _row(
    run: str, known: KnownRun | None, things: Sequence[Thing], survey: Survey | None, progress: Progress | None
) -> RunRow:
    standing = survey.standings.get(run) if survey else None
    life = standing.life if standing else Life.UNKNOWN
    return RunRow(
        run=run,
        name=known.name if known else "",
        state=known.said if known else "",
        owner=next((thing.owner for thing in things if thing.owner), ""),
        since=datetime.fromtimestamp(known.began, UTC).isoformat(timespec="seconds") if known and known.began else "",
        controller="alive" if life is Life.ALIVE else "gone" if life is Life.DEAD else "unknown",
        why=standing.why if standing and life is not Life.ALIVE else "",
        percent=progress.percent if progress else None,
        progress=progress.line if progress else "",
        instances=dict(Counter(one.detail.partition(",")[0] for one in things if one.kind == "instance")),
        things=dict(Counter(one.kind for one in things)),
    )
