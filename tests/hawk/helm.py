"""A stand-in for Helm: what Hawk's server asks of it, done with folders and processes.

Installing Hawk's chart starts the real runner with the chart's values, as the pod of its job would; uninstalling ends it.
`install` puts it on a PATH.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fleet.local.processes import MARK
from tests.hawk.releases import POD, VALUES, Release, releases

VERSION = "v3.18.0"
LOGGING = {"INSPECT_DISPLAY": "log", "INSPECT_LOG_CONDENSE": "true", "INSPECT_TRANSCRIPT_BOUNDED": "true"}
"""What the chart sets in every pod that decides how logs are written."""
LEAVING_S = 30.0
"""A pod's time between the signal that it gets and its end; less than the chart's 120, since no sandbox is to be closed."""


def install(folder: Path, *, state: Path, runner: Path, owner: int) -> Path:
    """An executable `helm` in `folder`, whose releases lie in `state`, and whose pods end with the process `owner`."""
    folder.mkdir(parents=True, exist_ok=True)
    (state / "installed").mkdir(parents=True)
    (state / "gone").mkdir()
    program = folder / "helm"
    words = [sys.executable, "-m", __name__, str(state), str(runner), str(owner)]
    root = Path(__file__).parents[2]
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec {" ".join(f"{word!r}" for word in words)} "$@"\n')
    program.chmod(0o755)
    return folder


def main(arguments: Sequence[str]) -> int:
    """One call of Helm's; its exit code."""
    state, runner, owner, verb, *words = arguments
    installed = Path(state) / "installed"
    if verb == "version":
        sys.stdout.write(VERSION)
    elif verb == "show":
        sys.stdout.write(Path(words[1], "Chart.yaml").read_text())
    elif verb == "upgrade":
        values = json.load(sys.stdin)
        begin(installed / words[0], values, [runner, owner])
        answer(words[0])
    elif not (found := list(releases(installed, words[0]))):
        sys.stderr.write("Error: release: not found\n")  # pyhelm3 knows it by these words
        return 1
    elif verb == "uninstall":
        end(found[0])
        shutil.move(found[0].folder, Path(state) / "gone" / f"{words[0]}-{time.time_ns()}")
    elif verb == "status":
        answer(words[0])
    else:
        sys.stderr.write(f"Error: the stand-in for Helm doesn't know {verb}\n")
        return 2
    return 0


def answer(name: str) -> None:
    """A release as Helm tells it."""
    moment = "2026-01-01T00:00:00Z"
    info = {
        "status": "deployed",
        "first_deployed": moment,
        "last_deployed": moment,
        "deleted": "",
        "description": "installed",
    }
    told = {"name": name, "version": 1, "namespace": "inspect", "info": info, "manifest": "", "hooks": []}
    sys.stdout.write(json.dumps(told))


def begin(folder: Path, values: dict[str, object], pod: Sequence[str]) -> None:
    """Start the pod, as the chart's job does: the secrets are its environment, and nothing of the server's is."""
    folder.mkdir()
    (folder / VALUES).write_text(json.dumps(values))
    (folder / "user.json").write_text(str(values["userConfig"]))
    (folder / "infra.json").write_text(str(values["infraConfig"]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HAWK_", "DATABASE_"))}
    secrets: dict[str, str] = values["jobSecrets"]  # type: ignore[assignment]
    own = {
        MARK: f"{os.environ[MARK].rpartition(':')[0]}:pod",
        "HOME": str(folder / "home"),
        **LOGGING,
        "HAWK_JOB_ID": folder.name,
        "HAWK_JOB_TYPE": str(values["jobType"]),
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.hawk.pod", str(folder), *pod, str(values["runnerCommand"])],
        env={**kept, **secrets, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    (folder / POD).write_text(str(started.pid))


def end(release: Release) -> None:
    """End the pod and wait until it is gone; it kills what doesn't heed its signal."""
    deadline = time.monotonic() + LEAVING_S + 5
    while release.exit_code is None and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((release.folder / POD).read_text()), signal.SIGTERM)
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
