"""What a fork costs of a process that has imported much."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, os
from bootstrap.runner.importing import for_good
with for_good():
    imported = [[number] for number in range(300_000)]
if not os.fork():
    gc.collect()
    rows = open("/proc/self/smaps_rollup").read().splitlines()
    print(sum(int(row.split()[1]) for row in rows if row.startswith("Private_Dirty")), gc.isenabled(), flush=True)
    os._exit(0)
os.wait()
"""
"""Some 40 MB of objects, and a child that looks for garbage."""


def test_a_runner_shares_what_was_imported_although_it_collects_garbage() -> None:
    """Of 32 runners each would have a copy of all of Inspect otherwise: more than a gigabyte."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    own_kb, collects = done.stdout.split()
    assert int(own_kb) < 10_000
    assert collects == "True"
