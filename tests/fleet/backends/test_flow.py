"""What stands before a controller's first step: the import of its flow."""

from __future__ import annotations

import subprocess
import sys

NEEDLESS = ("prefect_aws", "aiohttp", "aiobotocore", "prefect.workers", "moto", "inspect_ai")
"""Packages that pool workers, the local cloud or jobs need, and no controller: seconds of it, and megabytes."""


def test_the_flow_is_imported_without_what_other_processes_need() -> None:
    script = (
        "import sys; from fleet.backends.flow import import_flow; import_flow();"
        f"print('flows.run_eval' in sys.modules, [name for name in {NEEDLESS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"
