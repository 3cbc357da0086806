"""One process of a local cloud, seen from the supervisor that started it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.local.process_ref import ProcessRef


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a part: a module of ours, and the environment it runs in."""

    part: str
    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    fds: tuple[int, ...] = ()
    """Open files that it inherits."""


class Child:
    """A part that was started. Its stderr goes to its log; its stdout is one JSON line, the answer that it is ready."""

    def __init__(self, command: Command, *, folder: Path, log: Path) -> None:
        self.part = command.part
        self.log = log
        self._answer = folder / f"{command.part}.answer"
        with log.open("ab") as errors, self._answer.open("wb") as answer:
            self._process = subprocess.Popen(
                [sys.executable, "-m", command.module, *command.arguments],
                env=dict(command.environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=errors,
                pass_fds=command.fds,
                # Of its own, so that Ctrl-C in the terminal of `fleet run` reaches the command alone.
                start_new_session=True,
            )
        started = ProcessRef.of(self._process.pid)
        if started is None:
            raise LookupError(f"{command.part} isn't a process, though it was started and not waited for")
        self.process: ProcessRef = started

    def answer(self) -> dict[str, Any] | None:
        """What it printed when it was ready; None: it isn't yet."""
        line, end, _ = self._answer.read_text().partition("\n")
        return json.loads(line) if end else None

    def ended(self) -> str | None:
        """How it ended, for a person; None: it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def succeeded(self) -> bool:
        """It ended, and well."""
        return self._process.poll() == 0
