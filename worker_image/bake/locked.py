"""Does the Python that runs this hold what a lock file pins? Exit code 1, and the first differences, where it doesn't.

    fleet-python locked.py requirements.lock

Only the standard library, so that it can be asked before anything is installed. A pin whose marker doesn't hold here counts
where `packaging` is there to say so; it is among what is locked.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)\s*(?:;\s*([^\\]+?))?\s*\\?$", re.MULTILINE)


def differences(lock: str) -> list[str]:
    """Each pin that isn't here at its version, a line each."""
    found = []
    for name, version, marker in PIN.findall(lock):
        if not _holds(marker):
            continue
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            here = "absent"
        if here != version:
            found.append(f"{name}: {here}, locked is {version}")
    return found


def _holds(marker: str) -> bool:
    if not marker:
        return True
    try:
        from packaging.markers import Marker
    except ImportError:
        return True
    return Marker(marker).evaluate()


def main(words: list[str]) -> int:
    """Say what differs; 0: nothing does."""
    found = differences(Path(words[0]).read_text(encoding="utf-8"))
    for line in found[:5]:
        print(line)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
