"""What stands before a controller's first step: the import of its flow."""

from __future__ import annotations

import subprocess
import sys

from fleet.backends.flow import LATER

NEEDLESS = ("prefect_aws", "aiohttp", "aiobotocore", "prefect.workers", "moto", "inspect_ai")
"""Packages that pool workers, the local cloud or jobs need, and no controller: seconds of it, and megabytes."""


def test_the_flow_is_imported_without_what_other_processes_need() -> None:
    wanted = ("flows.run_eval", *LATER)
    script = (
        "import sys; from fleet.backends.flow import import_flow; import_flow();"
        f"print([[name for name in names if name in sys.modules] for names in ({wanted}, {NEEDLESS})])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([list(wanted), []])
