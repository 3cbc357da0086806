"""What a reaping found, decided and did, as data that a flow returns, its artifact shows and a command prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fleet.reaper.ownership import Survey
from fleet.reaper.removal import Outcome
from fleet.reaper.things import Kind
from fleet.reaper.verdict import Act, Decision

Done = Literal["left", "removed", "marked", "kept", "to remove", "to mark"]
IN_ORDER: Sequence[Done] = ("left", "removed", "to remove", "marked", "to mark", "kept")
"""What a person looks for comes first."""
DRY: dict[Act, Done] = {Act.REMOVE: "to remove", Act.MARK: "to mark", Act.UNMARK: "kept", Act.KEEP: "kept"}


class ReapRow(BaseModel):
    """One thing."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    what: str
    region: str
    run: str
    """Id of the flow run that it belongs to; empty: of none."""
    run_name: str
    owner: str
    done: Done
    why: str
    left: str = ""
    """Why it is still there, or couldn't be marked."""


class ReapReport(BaseModel):
    """One reaping."""

    model_config = ConfigDict(frozen=True)

    dry_run: bool
    rows: tuple[ReapRow, ...] = ()
    unseen: tuple[str, ...] = ()
    """What this identity may not look at."""

    @property
    def left(self) -> list[ReapRow]:
        """What should be gone, and isn't."""
        return [row for row in self.rows if row.done == "left"]

    def count(self, done: Done) -> int:
        """How many things came to this."""
        return sum(row.done == done for row in self.rows)

    @property
    def exit_code(self) -> int:
        """Of the command: 3 where something is left."""
        return 3 if self.left else 0

    def line(self) -> str:
        """It in one line."""
        if not self.rows:
            return "nothing there"
        counts = Counter(row.done for row in self.rows)
        said = ", ".join(f"{counts[done]} {done}" for done in IN_ORDER if counts[done])
        if self.dry_run:
            return f"nothing to do: {said}" if set(counts) == {"kept"} else f"dry run: {said}"
        return said


def report_of(survey: Survey, outcomes: Iterable[Outcome] | None) -> ReapReport:
    """The report of a survey that was carried out with these outcomes; None: a dry run."""
    if outcomes is None:
        rows = [_row(survey, decision, DRY[decision.act]) for decision in survey.decisions]
    else:
        rows = [_row(survey, one.decision, one.done, one.left) for one in outcomes]
    rows.sort(key=lambda row: (IN_ORDER.index(row.done), row.run, row.what))
    return ReapReport(dry_run=outcomes is None, rows=tuple(rows), unseen=survey.seen.unseen)


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
