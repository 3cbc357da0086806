"""What a reaping found, decided and did, as data that a flow returns, its artifact shows and a command prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from fleet.reaper.ownership import KnownRun, Survey
from fleet.reaper.removal import Ended, Outcome
from fleet.reaper.things import Kind
from fleet.reaper.verdict import Act, Decision

Done = Literal["left", "removed", "to remove", "ended", "to end", "marked", "to mark", "unmarked", "to unmark", "kept"]
IN_ORDER: Sequence[Done] = get_args(Done)
"""What a person looks for comes first."""
DRY: dict[Act, Done] = {Act.REMOVE: "to remove", Act.MARK: "to mark", Act.UNMARK: "to unmark", Act.KEEP: "kept"}


class ReapRow(BaseModel):
    """One thing, or a run that has none."""

    model_config = ConfigDict(frozen=True)

    kind: Kind | Literal["flow run"]
    what: str
    region: str
    run: str
    """Id of the flow run that it belongs to; empty: of none."""
    run_name: str
    owner: str
    done: Done
    why: str
    left: str = ""
    """Why it is still there, or couldn't be marked, or still has its mark."""


class ReapReport(BaseModel):
    """One reaping."""

    model_config = ConfigDict(frozen=True)

    dry_run: bool
    rows: tuple[ReapRow, ...] = ()
    unseen: tuple[str, ...] = ()
    """What this identity may not look at."""
    failed: tuple[str, ...] = ()
    """The accounts that couldn't be reaped, each with the reason."""

    @property
    def left(self) -> list[ReapRow]:
        """What should be gone, or marked, and isn't."""
        return [row for row in self.rows if row.done == "left"]

    def count(self, done: Done) -> int:
        """How many things came to this."""
        return sum(row.done == done for row in self.rows)

    @property
    def exit_code(self) -> int:
        """Of the command: 3 where something is left."""
        return 3 if self.left or self.failed else 0

    def line(self) -> str:
        """It in one line."""
        return "; ".join([self._counted(), *(f"not reaped: {one}" for one in self.failed)])

    def _counted(self) -> str:
        if not self.rows:
            return "nothing there"
        counts = Counter(row.done for row in self.rows)
        said = ", ".join(f"{counts[done]} {done}" for done in IN_ORDER if counts[done])
        if self.dry_run:
            return f"nothing to do: {said}" if set(counts) == {"kept"} else f"dry run: {said}"
        return said


def report_of(survey: Survey, outcomes: Iterable[Outcome] | None, ended: Iterable[Ended] = ()) -> ReapReport:
    """The report of a survey that was carried out with these outcomes; None: a dry run."""
    if outcomes is None:
        rows = [_row(survey, decision, DRY[decision.act]) for decision in survey.decisions]
        rows += [_run_row(run, "to end", why) for run, why in survey.unheeded.items()]
    else:
        rows = [_row(survey, one.decision, one.done, one.left) for one in outcomes]
        rows += [_run_row(one.run, one.done, one.why, one.left) for one in ended]
    return ReapReport(dry_run=outcomes is None, rows=tuple(sorted(rows, key=_place)), unseen=survey.seen.unseen)


def joined(reports: Iterable[ReapReport], failed: Iterable[str] = ()) -> ReapReport:
    """Several accounts' reports as one. They may see each other's things: what is done with one is said once."""
    reports = list(reports)
    first: dict[tuple[str, ...], ReapRow] = {}
    for row in sorted((row for report in reports for row in report.rows), key=_place):
        first.setdefault((row.kind, row.what, row.region, row.run), row)
    return ReapReport(
        dry_run=any(report.dry_run for report in reports),
        rows=tuple(first.values()),
        unseen=tuple(dict.fromkeys(what for report in reports for what in report.unseen)),
        failed=tuple(failed),
    )


def _place(row: ReapRow) -> tuple[int, str, str]:
    return IN_ORDER.index(row.done), row.run, row.what


def _run_row(run: KnownRun, done: Done, why: str, left: str = "") -> ReapRow:
    return ReapRow(
        kind="flow run",
        what=f"flow run {run.id}",
        region="",
        run=run.id,
        run_name=run.name,
        owner="",
        done=done,
        why=why,
        left=left,
    )


def _row(survey: Survey, decision: Decision, done: Done, left: str = "") -> ReapRow:
    thing = decision.thing
    known = survey.runs.get(thing.belongs_to)
    return ReapRow(
        kind=thing.kind,
        what=thing.name(),
        region=thing.region,
        run=thing.belongs_to,
        run_name=known.name if known else "",
        owner=thing.owner,
        done=done,
        why=decision.why,
        left=left,
    )
