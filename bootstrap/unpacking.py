"""Archives unpacked into a job environment: the source, and what settings consist of."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path

from fleet.errors import RequestRefused


class EnvironmentUnbuildable(RequestRefused):
    """The resolved packages, the source or a setting don't install."""

    step: str
    why: str

    def message(self) -> str:
        """What was being done, and the decisive sentence of what refused."""
        return f"the job environment can't be built ({self.step}): {self.why}"


def unpack_artifact(sha256: str, artifact: Callable[[str], Path], folder: Path, what: str) -> None:
    """Unpack what has this content address into a new `folder`. EnvironmentUnbuildable: `artifact` gives something else."""
    archive = artifact(sha256)
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise EnvironmentUnbuildable(step=f"unpack {what}", why=f"its SHA-256 is {found}, not {sha256}")
    folder.mkdir(parents=True)
    unpack(archive, folder)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, whose digest the caller has checked, into an existing folder."""
    with tarfile.open(archive, "r:gz") as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:  # an early patch release of 3.11
            tar.extractall(folder)  # noqa: S202 - our own archive: regular files and links that stay inside
