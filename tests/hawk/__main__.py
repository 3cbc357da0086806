"""`make hawk`: what can only be tested with Hawk installed, on a Python that Hawk accepts.

The tests of the room `fleet.hawk`, each with both clients and against Hawk's own models, then whole runs on Hawk's real server.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.hawk.tools import ROOT, ToolMissing, tools

TESTS = ("tests/fleet/hawk", "tests/hawk")


def main() -> int:
    """Pytest's exit code; 1: something is missing here."""
    try:
        found = tools(lambda line: print(line, flush=True))  # noqa: T201
    except ToolMissing as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    environment = {**os.environ, "FLEET_HAWK_PYTHON": str(found.runner)}
    command = [str(found.client), "-m", "pytest", "--durations=10", *(sys.argv[1:] or TESTS)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
