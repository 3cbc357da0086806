"""The files of one local instance: its folder within that of its cloud, and a temporary folder outside it.

What stays when it has ended is its console's output, as on EC2; all else goes, also when the host was killed before.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

CONSOLE = "console.log"
HOME = "home"
TEMPORARY = "temporary"
"""File that names the temporary folder, for those that come after a crash."""
PREFIX = "fleet-"


def folder_of(cloud: Path, instance: str) -> Path:
    """The folder of one instance in that of its cloud."""
    return cloud / "instances" / instance


def make_temporary(folder: Path) -> Path:
    """Make the temporary folder of the instance with this folder.

    Its path is short: Unix sockets are made in it, whose paths may not pass some hundred characters.
    """
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    (folder / TEMPORARY).write_text(str(made))
    return made


def clear(folder: Path) -> None:
    """Remove what an instance that has ended left in its folder and its temporary one, save its console's output."""
    with contextlib.suppress(OSError):
        temporary = Path((folder / TEMPORARY).read_text())
        if temporary.name.startswith(PREFIX):
            shutil.rmtree(temporary, ignore_errors=True)
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name == CONSOLE:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def clear_all(cloud: Path) -> None:
    """`clear` for every instance of a cloud, none of which runs."""
    for folder in (cloud / "instances").glob("i-*"):
        clear(folder)
