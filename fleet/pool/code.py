"""This version's code as one archive: what an instance runs is what was shipped, whatever its image holds.

Deterministic: the same files give the same bytes, so that the archive is stored once, under its own SHA-256.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fleet
from fleet.errors import FleetError

ROOMS = ("blocks", "bootstrap", "fleet", "flows", "worker_image")
"""The importable rooms, with the data files in them."""
DEPLOYMENTS = "prefect.yaml"
"""The deployments' definition: beside the rooms in a checkout, inside `flows` in an installed package and in the archive."""
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can hold."""
PLAIN_FILE = 0o100644 << 16


class CodeIncomplete(FleetError):
    """A room isn't where this installation's other rooms are."""

    room: str
    folder: str

    def message(self) -> str:
        """One line: what is missing, and where it was looked for."""
        return f"no code archive: the package {self.room} isn't in {self.folder}; install inspect-fleet again"


def code_archive(folder: Path | None = None) -> bytes:
    """A zip of the rooms in `folder` (by default: of this installation). CodeIncomplete."""
    root = folder or Path(fleet.__file__).resolve().parents[1]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for room in ROOMS:
            if not (root / room / "__init__.py").is_file():
                raise CodeIncomplete(room=room, folder=str(root))
            for path in _files(root / room):
                _add(archive, path.relative_to(root).as_posix(), path)
        if (root / DEPLOYMENTS).is_file() and not (root / "flows" / DEPLOYMENTS).exists():
            _add(archive, f"flows/{DEPLOYMENTS}", root / DEPLOYMENTS)
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    member = zipfile.ZipInfo(name, date_time=LONG_AGO)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = 3  # Unix, wherever it is packed
    member.external_attr = PLAIN_FILE
    archive.writestr(member, path.read_bytes())


def _files(folder: Path) -> Iterator[Path]:
    """All files that count, in one order everywhere."""
    for path in sorted(folder.rglob("*"), key=lambda found: found.as_posix()):
        parts = path.relative_to(folder).parts
        if path.is_file() and path.suffix != ".pyc" and not any(_is_left_out(part) for part in parts):
            yield path


def _is_left_out(part: str) -> bool:
    return part == "__pycache__" or part.startswith(".")
