"""`make demo`: the elements eval on a local cloud of two instances, with a scripted model. No account, no key."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from fleet.cli.main import main

EXAMPLES = Path(__file__).parent
COMMAND = [
    "run",
    "fleet_examples/elements",
    "--model",
    "scripted/chemist",
    "--source",
    str(EXAMPLES),
    "--eval-arg",
    "epochs=2",
    "--ec2-arg",
    "max_workers=2",
    "--ec2-arg",
    "new_fleet=true",
    "--local-cloud",
    "--log-dir",
    "logs",
]

if __name__ == "__main__":
    print(f"$ fleet {shlex.join(COMMAND)}", file=sys.stderr)  # noqa: T201 - a demo shows what it types
    sys.argv = ["fleet", *COMMAND]
    main()
