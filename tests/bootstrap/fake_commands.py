"""Commands that are answered from a table, for host steps: what was asked stays to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bootstrap.commands import NOT_THERE, Said


@dataclass
class Asked:
    """One command as a step gave it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] | None
    given: str | None
    user: str | None


@dataclass
class FakeCommands:
    """Answers by the first words of a command; of several that fit, the longest. What isn't in the table isn't installed."""

    answers: Mapping[str, Said | Callable[[Asked], Said]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        given: str | None = None,
        user: str | None = None,
        seconds: float = 60,
    ) -> Said:
        asked = Asked(tuple(argv), env, given, user)
        self.asked.append(asked)
        line = " ".join(argv)
        for words in sorted(self.answers, key=len, reverse=True):
            if line.startswith(words):
                answer = self.answers[words]
                return answer if isinstance(answer, Said) else answer(asked)
        return Said(NOT_THERE, err=f"the command {argv[0]} is not installed")
