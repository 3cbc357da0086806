"""What the stand-in for Helm and the stand-in for Kubernetes agree on: a folder for each release, and what lies in it.

The release's runner is one process group instead of a pod; its end is a file with its exit code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VALUES = "values.json"
"""What the chart was given."""
OUTPUT = "output.txt"
"""Of the runner, both streams."""
POD = "pod"
"""The process id of what stands for the pod."""
EXIT_CODE = "exit-code"


@dataclass(frozen=True, slots=True)
class Release:
    """One release, as its folder tells."""

    folder: Path

    @property
    def name(self) -> str:
        """Also the id of Hawk's job."""
        return self.folder.name

    @property
    def values(self) -> dict[str, Any]:
        """What the chart was given."""
        values: dict[str, Any] = json.loads((self.folder / VALUES).read_text())
        return values

    @property
    def exit_code(self) -> int | None:
        """Of the runner; None: it runs."""
        try:
            return int((self.folder / EXIT_CODE).read_text())
        except FileNotFoundError:
            return None

    @property
    def output(self) -> str:
        """What the runner has printed."""
        return (self.folder / OUTPUT).read_text(errors="replace")

    @property
    def phase(self) -> str:
        """Of its pod, in Kubernetes' words."""
        return {None: "Running", 0: "Succeeded"}.get(self.exit_code, "Failed")


def releases(folder: Path, name: str | None = None) -> Iterator[Release]:
    """All releases that are installed, or the one of that name."""
    for one in sorted(folder.iterdir()) if name is None else [folder / name]:
        if (one / POD).exists():
            yield Release(one)
