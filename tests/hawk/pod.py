"""What stands for a runner's pod: it starts the real runner, writes down how it ended, and ends with the harness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fleet.processes import process
from tests.hawk.helm import LEAVING_S
from tests.hawk.releases import EXIT_CODE, OUTPUT


def main() -> None:
    """Until the runner has ended."""
    folder, python, owner, command = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    (folder / "home").mkdir(exist_ok=True)
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)  # the harness's own
    with (folder / OUTPUT).open("wb") as output:
        runner = subprocess.Popen(
            [str(python), "-m", "hawk.runner.entrypoint", command, "user.json", "infra.json"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    leaving: float | None = None
    while (code := runner.poll()) is None:
        if leaving is None and (asked or process(owner) is None):
            os.killpg(runner.pid, signal.SIGINT)  # the stop signal of Hawk's image
            leaving = time.monotonic() + LEAVING_S
        elif leaving is not None and time.monotonic() > leaving:
            os.killpg(runner.pid, signal.SIGKILL)
        time.sleep(0.1)
    written = folder / f"{EXIT_CODE}.new"
    written.write_text(str(code))
    written.rename(folder / EXIT_CODE)


if __name__ == "__main__":
    main()
