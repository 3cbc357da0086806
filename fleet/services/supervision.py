"""Keeping processes alive: each is started when it may be, started again with growing pauses, and replaced when it doesn't answer.

Nothing here knows what they are. `Supervision.look` is one pass: it never waits, so that tests give it the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
CALM_SECONDS = 120.0
"""A process that ran so long has begun well: its next end is a first one again."""
HEALTH_SECONDS = 15.0
MISSES = 4
"""Health checks in a row that may fail; a server that migrates its database, or swaps, may be silent for a while."""

END_SECONDS = 10.0
"""From SIGTERM to SIGKILL."""
START_SECONDS = 900.0
"""A process that hasn't answered by then since it was started is replaced; a database of years takes minutes to migrate."""


class Running(Protocol):
    """A process that was started."""

    def ended(self) -> int | None:
        """Its exit code; None: it runs."""

    def tell(self) -> None:
        """Ask it to end (SIGTERM)."""

    def kill(self) -> None:
        """End it (SIGKILL)."""


@dataclass(frozen=True, slots=True)
class Part:
    """A process to keep."""

    name: str
    start: Callable[[], Running]
    healthy: Callable[[], bool] | None = None
    """Whether it answers; None: that it runs is all that can be known."""
    after: str | None = None
    """It begins once this part answers (or, where that one is done once, has done it)."""
    once: bool = False
    """It ends by itself, and only a failure is a reason to start it again."""
    start_seconds: float = START_SECONDS
    """It is replaced when it hasn't answered by then since it was started."""
    expected: tuple[type[Exception], ...] = (OSError,)
    """What `start` may raise, and be called again."""


def pause(failures: int) -> float:
    """Seconds to wait before the next start, after so many ends in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(max(failures - 1, 0), 16))


@dataclass(slots=True)
class _Kept:
    running: Running | None = None
    started: float = 0.0
    failures: int = 0
    not_before: float = 0.0
    next_health: float = 0.0
    answered: bool = False
    """It answered since it was started; for one that is done once: it has done it."""
    misses: int = 0


@dataclass
class Supervision:
    """The parts of one control plane."""

    parts: Sequence[Part]
    say: Callable[[str], None]
    _kept: dict[str, _Kept] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = {part.name: _Kept() for part in self.parts}

    def look(self, now: float) -> None:
        """One pass over all parts at `now` (monotonic seconds)."""
        for part in self.parts:
            kept = self._kept[part.name]
            if kept.running is None:
                if not (part.once and kept.answered) and now >= kept.not_before and self._may_start(part):
                    self._start(part, kept, now)
                continue
            code = kept.running.ended()
            if code is not None:
                self._ended(part, kept, code, now)
            elif part.healthy is not None and now >= kept.next_health:
                self._check(part, part.healthy, kept, now)
            elif part.healthy is None and not part.once:
                kept.answered = True

    def well(self) -> bool:
        """Every part does what it is for."""
        return all(kept.answered for kept in self._kept.values())

    def stop(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """End every part, the last first, so that none loses what it leans on: SIGTERM, and SIGKILL after END_SECONDS."""
        for name, running in self.running():
            self.say(f"{name} is told to end")
            running.tell()
            until = clock() + END_SECONDS
            while running.ended() is None:
                if clock() >= until:
                    self.say(f"{name} is ended by force")
                    running.kill()
                    break
                sleep(0.05)

    def running(self) -> list[tuple[str, Running]]:
        """What runs, the last part first."""
        return [
            (part.name, running)
            for part in reversed(self.parts)
            if (running := self._kept[part.name].running) is not None
        ]

    def _may_start(self, part: Part) -> bool:
        return part.after is None or self._kept[part.after].answered

    def _start(self, part: Part, kept: _Kept, now: float) -> None:
        try:
            kept.running = part.start()
        except part.expected as error:
            self._failed(part, kept, f"couldn't be started: {error}", now)
            return
        kept.started, kept.misses = now, 0
        kept.answered = False
        kept.next_health = now
        self.say(f"{part.name} started")

    def _ended(self, part: Part, kept: _Kept, code: int, now: float) -> None:
        kept.running = None
        if part.once and code == 0:
            kept.answered, kept.failures = True, 0
            self.say(f"{part.name} done")
            return
        kept.answered = False
        if now - kept.started >= CALM_SECONDS:
            kept.failures = 0
        self._failed(part, kept, f"ended with exit code {code}", now)

    def _failed(self, part: Part, kept: _Kept, how: str, now: float) -> None:
        kept.failures += 1
        wait = pause(kept.failures)
        kept.not_before = now + wait
        self.say(f"{part.name} {how}; it starts again in {wait:.0f} s")

    def _check(self, part: Part, healthy: Callable[[], bool], kept: _Kept, now: float) -> None:
        if healthy():
            if not kept.answered:
                self.say(f"{part.name} answers after {now - kept.started:.1f} s")
            kept.answered, kept.misses = True, 0
            kept.next_health = now + HEALTH_SECONDS
            return
        kept.next_health = now
        if not kept.answered:  # it is on its way
            too_long = now - kept.started >= part.start_seconds
        else:
            kept.misses += 1
            kept.next_health += HEALTH_SECONDS
            self.say(f"{part.name} doesn't answer ({kept.misses} of {MISSES})")
            too_long = kept.misses >= MISSES
        if too_long and kept.running is not None:
            self.say(f"{part.name} is ended, since it doesn't answer")
            kept.running.kill()  # found ended at the next look
