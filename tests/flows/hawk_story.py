"""What a run on Hawk is about, who hears of it, and the artifacts that it would have. No test in here."""

from __future__ import annotations

from typing import Any

from fleet.evals.listener import Nobody, Seen
from tests.hawk_server import eval_log

ID = "evalkit-plain-0123456789ab"
TASK, MODEL = "evalkit/plain", "kit/model"
GOOD = {"1_plain.eval": eval_log(TASK, MODEL)}
BAD = {"1_plain.eval": eval_log(TASK, MODEL, status="error", error="boom", done=1)}


class Follower(Nobody):
    """Hears a run."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.lines: list[str] = []

    def warn(self, line: str) -> None:
        self.warnings.append(line)

    def progress(self, progress: Seen) -> None:
        if progress.line() not in self.lines[-1:]:
            self.lines.append(progress.line())


class Bar:
    """The artifacts of a run, which has no Prefect here."""

    rows: list[Any]

    def __init__(self, table: str) -> None:
        Bar.rows = []

    def bring_up_to_date(self, progress: Seen, rows: list[Any], *, about: str) -> None:
        Bar.rows.append((progress.fraction, rows, about))


class Done:
    def is_cancelled(self) -> bool:
        return False

    def result(self) -> None:
        pass
