"""Starts a module of ours that imports Prefect: `python -m fleet.services.launcher MODULE ARGUMENT…` calls its `main`."""

from __future__ import annotations

import importlib
import sys

from fleet.importing import undisturbed


def main(module: str, arguments: list[str]) -> None:
    """Import `module` undisturbed, then run it."""
    with undisturbed():
        run = importlib.import_module(module).main
    run(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
