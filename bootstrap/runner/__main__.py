"""The entry: `VERB …`. Loads this folder as a private package, so that no name of ours is in the way of the user's code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

PACKAGE = "inspect_fleet_runner"
VERBS = ("plan", "serve", "whole", "recompute")
"""Each is a module here with `main(arguments: list[str]) -> int`."""


def main() -> int:
    """Run the verb and give its exit code."""
    here = Path(__file__).resolve().parent
    # Python puts a script's folder first on the path: a task's `import plan` would find ours.
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        sys.stderr.write(f"usage: {Path(__file__).name} {'|'.join(VERBS)} …\n")
        return 2
    spec = importlib.util.spec_from_file_location(PACKAGE, here / "__init__.py", submodule_search_locations=[str(here)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{here} can't be loaded as a package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    with importlib.import_module(f"{PACKAGE}.importing").for_good():
        verb = importlib.import_module(f"{PACKAGE}.{sys.argv[1]}")
    code: int = verb.main(sys.argv[2:])
    return code


if __name__ == "__main__":
    sys.exit(main())
