"""Starts a module of ours that imports Prefect: `python -m fleet.local.launcher MODULE ARGUMENT…` calls its `main(arguments)`.

An import makes hundreds of thousands of objects that stay, and the garbage collector walks all of them again and again: without it
the import takes a quarter less. Afterwards it works as always, but no longer looks at what the import made.
"""

from __future__ import annotations

import gc
import importlib
import sys


def main(module: str, arguments: list[str]) -> None:
    """Import `module` undisturbed, then run it."""
    gc.disable()
    run = importlib.import_module(module).main
    gc.freeze()
    gc.enable()
    run(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
