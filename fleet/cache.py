"""Where this machine keeps what can be made again: job environments, databases to begin with, local clouds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str] = os.environ, home: Path | None = None) -> Path:
    """$FLEET_CACHE_DIR, or `inspect-fleet` in the user's cache folder; absolute. `home`: whose, by default one's own."""
    if named := environ.get("FLEET_CACHE_DIR"):
        return Path(named).expanduser().resolve()
    return Path(environ.get("XDG_CACHE_HOME") or (home or Path.home()) / ".cache").resolve() / "inspect-fleet"
