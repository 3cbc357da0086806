"""Questions to an installed Hawk, which may want another Python than ours."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

PYTHON = "FLEET_HAWK_PYTHON"
"""Environment variable that names the interpreter of an environment with hawk[runner,inspect]; `make hawk` sets it."""


def ask(script: str, told: Any = None) -> Any:
    """What a script prints as JSON where Hawk is installed; it reads `told` from its stdin."""
    python = os.environ[PYTHON]
    ended = subprocess.run(
        [python, "-c", script], input=json.dumps(told), capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])
