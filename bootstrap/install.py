"""The code that jobs run, brought to this instance: artifacts by their hash, and the job environment made of them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import bootstrap
import fleet
from bootstrap.environment import JobEnvironment
from fleet.errors import FleetError
from fleet.evals.layout import Layout
from fleet.evals.settings import FOLDER

LOOK_SECONDS = 60
_LOOK = """
import importlib.metadata, importlib.util, json, sys
spec = importlib.util.find_spec("inspect_ai")
print(json.dumps([sys.version.split()[0], importlib.metadata.version("inspect_ai"), spec and spec.origin]))
"""


class ArtifactCorrupt(FleetError):
    """What lies under an artifact's name isn't what the name says."""

    uri: str
    found: str

    def message(self) -> str:
        """One line."""
        return f"the artifact {self.uri} has the SHA-256 {self.found}: it was overwritten or damaged; run the request again"


class DownloadsObjects(Protocol):
    """What is needed of `fleet.aws.objects.Objects`."""

    def download(self, key: str, to: Path) -> None:
        """The object's content, in a file."""
        ...

    def uri(self, key: str) -> str:
        """The address of `key`."""
        ...


def fetch_artifact(objects: DownloadsObjects, layout: Layout, sha256: str, folder: Path) -> Path:
    """The artifact with this hash as a file in `folder`, checked. ArtifactCorrupt, ObjectAbsent, AwsRefused."""
    key = layout.artifact(sha256)
    path = folder / sha256
    objects.download(key, path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        path.unlink()
        raise ArtifactCorrupt(uri=objects.uri(key), found=found)
    return path


def resolved_locations(environment: JobEnvironment, *, run: Callable[[Path], str] | None = None) -> Iterator[str]:
    """Where each piece of code is really taken from, a line each: a stale copy in an image would show here."""
    yield f"fleet from {_folder(fleet.__file__)}, bootstrap from {_folder(bootstrap.__file__)}, Python {sys.executable}"
    try:
        python, version, origin = json.loads((run or _look)(environment.python))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        yield f"job environment {environment.python}: could not be looked at ({error})"
    else:
        yield f"job environment {environment.python} (Python {python}): inspect-ai {version} from {_folder(origin)}"
    if environment.source is not None:
        yield f"source at {environment.source}"
    for setting in environment.spec.settings:
        yield f"setting {setting.name} at {environment.working_folder / FOLDER / setting.name}, commit {setting.commit}"


def _look(python: Path) -> str:
    return subprocess.run(
        [str(python), "-I", "-c", _LOOK], check=True, capture_output=True, text=True, timeout=LOOK_SECONDS
    ).stdout


def _folder(file: str | None) -> str:
    return str(Path(file).parent) if file else "nowhere"
