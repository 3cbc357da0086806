"""Stopping runs as a person asks for it: found by a few letters, cancelled as in the UI, and followed to their instances' end.

A run's own controller tears it down. Where none answers any more, its workers are asked to end themselves, so that no instance is
left; its queues and locks are the reaper's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.errors import RequestRefused
from fleet.evals.progress import WorkerFacts
from fleet.pool.runs import BETWEEN
from fleet.reaper.ownership import KnownRun
from fleet.reaper.verdict import FINAL

SHORTEST = 4
"""Characters of an id that may name a run."""
ANSWER_S = 20.0
"""How long a controller has to act on its cancellation before its workers are asked themselves: it looks about once a second,
unless it plans or merges."""
LOOK_S = 1.0


class RunUnknown(RequestRefused):
    """No run that goes on has this id or name."""

    asked: str
    running: str

    def message(self) -> str:
        """One line: what was looked for, and what there is."""
        there = f"what runs: {self.running}" if self.running else "nothing runs"
        return f"no run goes on whose id or name begins with {self.asked!r}; {there}"


class RunAmbiguous(RequestRefused):
    """Several runs are meant."""

    asked: str
    runs: str

    def message(self) -> str:
        """One line: which."""
        return f"{self.asked!r} may be {self.runs}: write more of one's id"


class Stops(Protocol):
    """What is asked of Prefect (`fleet.reaper.runs.PrefectRuns`, or a fake)."""

    def read(self, ids: Iterable[str]) -> Mapping[str, KnownRun]:
        """Those of these flow runs that the server knows."""

    def cancel(self, run: str, why: str) -> None:
        """Ask a run to end."""

    def workers(self, run: str) -> list[WorkerFacts]:
        """The workers of a run that aren't over."""

    def stop_workers(self, run: str, why: str) -> None:
        """Ask its workers to end."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """How it went with one run."""

    run: str
    name: str
    state: str
    """Prefect's word for it now."""
    over: bool
    """Whether it has ended, and its workers with it."""
    left: tuple[str, ...] = ()
    """What is still there."""


def chosen(asked: Sequence[str], active: Sequence[KnownRun]) -> list[KnownRun]:
    """The runs that are meant by these words, each once. RunUnknown, RunAmbiguous."""
    found: dict[str, KnownRun] = {}
    for text in asked:
        meant = [run for run in active if is_meant(text, run)]
        if not meant:
            raise RunUnknown(asked=text, running=", ".join(short(run) for run in active))
        if len(meant) > 1:
            raise RunAmbiguous(asked=text, runs=" or ".join(short(run) for run in meant))
        found[meant[0].id] = meant[0]
    return list(found.values())


def is_meant(text: str, run: KnownRun) -> bool:
    """Whether the text is the beginning of the run's id, its name, or the name that it was started under."""
    own = run.name.rpartition(BETWEEN)[2]
    return bool(text) and (
        (len(text) >= SHORTEST and run.id.startswith(text.lower())) or run.name.startswith(text) or own.startswith(text)
    )


def short(run: KnownRun) -> str:
    """A run in a few words."""
    return f"{run.id[:8]} ({run.name})"


def stop(
    run: KnownRun,
    runs: Stops,
    *,
    why: str,
    patience: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Stopped:
    """Cancel a run, and wait up to `patience` seconds until it and its workers have ended."""
    runs.cancel(run.id, why)
    began, asked, said = clock(), False, ""
    while True:
        now = runs.read([run.id]).get(run.id)
        workers = runs.workers(run.id)
        over = now is None or now.state in FINAL
        waited = clock() - began
        if (over and not workers) or waited >= patience:
            left = tuple(_left(workers, controlled=over))
            return Stopped(run.id, run.name, now.said if now else "deleted", not left, left)
        if workers and not asked and (over or waited >= ANSWER_S):
            runs.stop_workers(run.id, why)
            asked = True
        line = f"{short(run)}: {now.said if now else 'deleted'}, instances that have yet to end: {len(workers)}"
        if line != said:
            say(line)
            said = line
        sleep(LOOK_S)


def _left(workers: Sequence[WorkerFacts], *, controlled: bool) -> list[str]:
    left = [
        f"instance {fact.instance or 'of an unknown id'} of {fact.name}: the pool worker ends it, if one is running"
        for fact in workers
    ]
    if not controlled:
        left.append(
            "its controller doesn't answer: what it holds in AWS goes when its lock has expired (5 minutes after its last sign of "
            "life), with `fleet reap --now`"
        )
    return left
