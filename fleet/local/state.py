"""What a local cloud keeps on disk: where it lies, and what its supervisor says about itself there.

The supervisor alone writes the state while it lives; `up`, `down` and `status` read it. A written state is always whole: it is
written aside and renamed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar, Literal

from fleet.cache import cache_folder
from fleet.errors import RequestRefused
from fleet.local.process_ref import ProcessRef
from fleet.wire import Wire

CloudPhase = Literal["starting", "ready", "failed", "stopping"]


class CloudNameRefused(RequestRefused):
    """A cloud's name becomes a folder's name, so it is a plain word."""

    name: str

    def message(self) -> str:
        """Name it, and say what is allowed."""
        return f"{self.name!r} can't name a local cloud: use up to 40 lower-case letters, digits and dashes, a letter first"


class Part(Wire):
    """One process that the supervisor keeps."""

    process: ProcessRef | None = None
    """None: not started yet, or given up."""
    ready: bool = False
    restarts: int = 0
    why: str = ""
    """How it ended last, if it did."""
    log: str
    """The file that holds its output."""


class CloudState(Wire):
    """A local cloud as its supervisor last saw it."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    name: str
    phase: CloudPhase = "starting"
    doing: str = ""
    """While it starts: what it does now."""
    failed_part: str = ""
    why: str = ""
    """In the phase `failed`: which part, and what happened to it."""
    supervisor: ProcessRef
    owner: ProcessRef | None = None
    """The process with which the cloud ends; None: it stays until `down`."""
    parts: dict[str, Part] = {}
    aws_endpoint: str = ""
    prefect_api: str = ""


def clouds_folder() -> Path:
    """The folder of all local clouds."""
    return cache_folder() / "local"


def cloud_folder(name: str) -> Path:
    """The folder of one local cloud. CloudNameRefused: not a plain word."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", name):
        raise CloudNameRefused(name=name)
    return clouds_folder() / name


def log_file(folder: Path, part: str) -> Path:
    """The file that holds the output of a part."""
    return folder / "logs" / f"{part}.log"


def read(folder: Path) -> CloudState | None:
    """The state in `folder`; None: there is none. DocumentRefused: another release wrote it."""
    try:
        return CloudState.read((folder / "state.json").read_text())
    except FileNotFoundError:
        return None


def write(folder: Path, state: CloudState) -> None:
    """Put `state` in the place of what `folder` held."""
    aside = folder / "state.json.new"
    aside.write_text(state.write())
    aside.replace(folder / "state.json")


def tail(log: Path, lines: int = 12) -> list[str]:
    """The last lines of a log; none when there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 20_000))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]


def processes_of(state: CloudState | None) -> dict[str, ProcessRef]:
    """The parts that have a process, by name."""
    return {name: part.process for name, part in state.parts.items() if part.process} if state else {}
