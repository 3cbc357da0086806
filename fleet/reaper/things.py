"""What a deployment holds in AWS, as the reaper sees it: a thing, whose it is, and since when it is known to be nobody's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from fleet.evals.preparation import MOST_TAG_CHARS

Kind = Literal["instance", "volume", "launch template", "queue", "parameter", "lock"]

MARK_TAG = "inspect-fleet:nobodys-since"
"""Tag with the time of the first look that found an instance or a queue to be nobody's."""
NO_MARK = "-"
"""Its value where a later look found an owner: an empty value isn't taken everywhere, and deleting a tag is one more permission."""


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing that carries our tags, or lies where only ours do. Times are seconds since the epoch."""

    kind: Kind
    id: str
    """An instance's, a volume's or a template's id, a queue's URL, a parameter's name, a lock's key."""
    region: str
    run: str = ""
    """Flow run of the `run_eval` that made it; empty: no run of evals did."""
    flow_run: str = ""
    """Flow run that an instance is for."""
    pool: str = ""
    """Id of the work pool whose worker launched it."""
    evals: str = ""
    """Ids of the evals that its run works, between spaces; of many, the first ones."""
    home: str = ""
    """Under which address the locks of its run lie; empty: it doesn't say."""
    owner: str = ""
    """Who started the run, as IAM knows them."""
    detail: str = ""
    """A few words for a person: type, market and state, or a name."""
    born: float | None = None
    """Made, or last written; None: AWS doesn't say."""
    marked: float | None = None
    """When a look first found it to be nobody's."""
    expires: float | None = None
    """Of a lock."""
    etag: str = ""
    """Of a lock: what is deleted is what was seen."""

    @property
    def belongs_to(self) -> str:
        """The flow run whose life decides: the run's, else its own."""
        return self.run or self.flow_run

    @property
    def markable(self) -> bool:
        """Whether it takes the mark. What doesn't says its age itself."""
        return self.kind in ("instance", "queue")

    @property
    def known_since(self) -> float | None:
        """Since when it may be counted as nobody's; None: not yet."""
        return self.marked if self.markable else self.born

    def name(self) -> str:
        """It in a few words, as a person reads it."""
        short = self.id.rsplit("/", 1)[-1] if self.kind == "queue" else self.id
        return f"{self.kind} {short}{f' ({self.detail})' if self.detail else ''}"


def evals_of(things: Iterable[Thing]) -> frozenset[str] | None:
    """The evals of the one run that these things are of; None: they don't name all, as where a tag has no room for more."""
    tags = {one.evals for one in things if one.evals}
    if not tags or any(len(tag) >= MOST_TAG_CHARS for tag in tags):
        return None
    return frozenset(name for tag in tags for name in tag.split())


def mark_of(moment: float) -> str:
    """The mark's value for this moment."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def read_mark(value: str | None) -> float | None:
    """The moment that a mark names; None: there is no mark."""
    try:
        moment = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
