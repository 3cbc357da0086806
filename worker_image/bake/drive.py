"""Bake this machine into a worker image: every step of `steps/`, in order, as root.

    python3 drive.py

`recipe.json` beside it says what is asked for; each step reads it from its environment. FLEET_ROOT puts all files under
another folder. With FLEET_BUILD_FOLDER (s3://…) and FLEET_LOG, the log so far goes to S3 before each step, so that whoever waits
sees how far it is. Runs on the base image's own Python, so that nothing of this project is imported. Exit code: the step's.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PUT_SECONDS = 180
"""For the log so far: a bucket that doesn't answer must not hold up a build."""
STEP = "== step"
"""Begins the line that tells of a step: `== step 2 of 7: docker`. Whoever waits looks for it."""


def environment(recipe: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """What each step is told."""
    return {
        **environ,
        "FLEET_BUNDLE": str(HERE),
        "FLEET_ROOT": environ.get("FLEET_ROOT", ""),
        "FLEET_GPU": "1" if recipe["gpu"] else "",
        "FLEET_PULL": "\n".join(recipe["pull"]),
        "FLEET_PYTHON": recipe["python"],
        "DEBIAN_FRONTEND": "noninteractive",
        "LC_ALL": "C.UTF-8",
    }


def image_file(recipe: Mapping[str, Any], now: float) -> dict[str, Any]:
    """What the finished image says of itself, in /etc/inspect-fleet/image.json."""
    return {**recipe, "baked": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))}


def say(line: str) -> None:
    """A line of the log."""
    print(line, flush=True)  # noqa: T201


def tell() -> None:
    """Put the log so far into S3, where that is asked for; a log that can't be put stops no build."""
    folder, log = os.environ.get("FLEET_BUILD_FOLDER"), os.environ.get("FLEET_LOG")
    if folder and log:
        put = [sys.executable, str(HERE / "plain_s3.py"), "put", log, f"{folder}/build.log"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(put, check=False, timeout=PUT_SECONDS)


def main() -> int:
    """All steps; the exit code of the first that fails."""
    recipe = json.loads((HERE / "recipe.json").read_text())
    told = environment(recipe, os.environ)
    steps = sorted((HERE / "steps").glob("*.sh"))
    root = Path(told["FLEET_ROOT"] or "/")
    for number, step in enumerate(steps, 1):
        say(f"{STEP} {number} of {len(steps)}: {step.stem.partition('-')[2]}")
        tell()
        began = time.monotonic()
        # Without a bound of its own: Image Builder ends the whole bake (timeoutSeconds in pipeline.yaml).
        code = subprocess.run(["bash", str(step)], env=told, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            say(f"step {step.stem} failed with exit code {code}")
            return code
        say(f"   done after {time.monotonic() - began:.0f} s")
    about = root / "etc/inspect-fleet/image.json"
    about.parent.mkdir(parents=True, exist_ok=True)
    about.write_text(json.dumps(image_file(recipe, time.time()), indent=2) + "\n")
    say(f"baked: {about}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
