"""Starts a module of ours that imports Prefect: `python -m fleet.services.launcher MODULE ARGUMENT…` calls its `main`."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys

from fleet.importing import undisturbed

PARENT = "FLEET_PARENT"
"""Environment: the id of the process that started this one, where it is to end with it, however that one ends. It isn't
handed on."""
SET_DEATH_SIGNAL = 1
"""prctl(2): PR_SET_PDEATHSIG."""


def main(module: str, arguments: list[str]) -> None:
    """Import `module` undisturbed, then run it."""
    if parent := os.environ.pop(PARENT, None):
        end_with(int(parent))
    with undisturbed():
        run = importlib.import_module(module).main
    run(arguments)


def end_with(parent: int) -> None:
    """Let this process get SIGTERM when its parent is gone, or end now if it is."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, is gone")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
