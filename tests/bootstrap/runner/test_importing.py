"""What a fork costs of a process that has imported much."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bootstrap import runner
from bootstrap.runner.importing import for_good

RUNNER = Path(runner.__file__).parent

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


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with for_good():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_entry_imports_a_verb_undisturbed_and_runs_it_with_the_collector_on(tmp_path: Path) -> None:
    for name in ("__init__.py", "__main__.py", "importing.py"):
        shutil.copy(RUNNER / name, tmp_path)
    (tmp_path / "plan.py").write_text(
        "import gc\ndisturbed = gc.isenabled()\n"
        "def main(_): print(disturbed, gc.isenabled(), gc.get_freeze_count() > 0)\n"
    )
    command = [sys.executable, str(tmp_path / "__main__.py"), "plan"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [
        "False",
        "True",
        "True",
    ]


WARMED = """
import gc, socket
from bootstrap.runner.zygote import Zygote
ours, theirs = socket.socketpair()
Zygote(ours, lambda sock: 0)._warm([], ["of_the_user"])
import inspect_ai, of_the_user
print(inspect_ai.disturbed, of_the_user.disturbed, gc.isenabled(), of_the_user.frozen_before < gc.get_freeze_count())
"""


def test_the_parent_of_runners_imports_undisturbed_what_they_share(tmp_path: Path) -> None:
    """Inspect, of which this is a small stand-in, and what an earlier trial has found."""
    for name in ("inspect_ai", "of_the_user"):
        (tmp_path / f"{name}.py").write_text(
            "import gc\ndisturbed = gc.isenabled()\nfrozen_before = gc.get_freeze_count()\nmany = [[] for _ in range(100)]\n"
        )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(RUNNER.parents[1])])}
    done = subprocess.run([sys.executable, "-c", WARMED], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["False", "False", "True", "True"]
