"""The documentation's pictures, taken of real runs: `python -m tests.ui.pictures DIR` (needs Chromium and tmux, takes minutes)."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cloud import EXAMPLES, CloudUnderTest, a_cloud, until
from tests.ui.browser import a_browser
from tests.ui.prefect_ui import PrefectUI
from tests.ui.terminal import a_terminal

NAME = "pictures"
"""Of the local cloud."""
WIDTH = 1400
SETTLE_S = 2.5
"""A graph of a run draws itself some moments after its page is quiet."""
COMMAND = (
    "fleet run fleet_examples/elements --model scripted/chemist -M latency=0.5 \\",
    "--source examples --eval-arg epochs=2 --local-cloud",
)
SECRET = "OPENAI_API_KEY"


def request(source: str) -> dict[str, Any]:
    """A run that lasts long enough to be looked at, and that has a secret to fetch."""
    return {
        "tasks": [{"name": "fleet_examples/elements"}],
        "models": [{"name": "scripted/chemist", "args": {"latency": 0.3}}],
        "source": source,
        "secrets": [SECRET],
    }


CONFIG = {"max_workers": 2, "concurrency_per_worker": 2, "new_fleet": True}


def of_the_command(to: Path) -> None:
    """The command's display in the middle of a run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "examples").symlink_to(EXAMPLES)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "AWS_"))}
        with a_terminal(folder, {**environ, "FLEET_LOCAL_CLOUD": NAME}) as terminal:
            for line in COMMAND:
                terminal.type(line)
            until("half of it", lambda: 45 <= percentage(terminal.text()) <= 75, seconds=240)
            terminal.keep(to / "run.svg", "fleet run")
            until("its end", lambda: "log: " in terminal.text(), seconds=240)


def percentage(screen: str) -> int:
    """What the display's bar says; 0: it shows none yet."""
    found = re.search(r"(\d+)%", screen)
    return int(found[1]) if found else 0


def of_the_ui(to: Path) -> None:
    """The form, the approval, the run, an instance's steps and the artifacts."""
    os.environ[SECRET] = "not-a-key"  # the controllers of the cloud have it from here
    with a_cloud(NAME) as cloud, a_browser() as browser:
        ui = PrefectUI(browser.new_context().new_page(), cloud.local.prefect_ui)
        deployment = cloud.prefect("deployments/name/run-eval/run-eval")["id"]

        form = ui.run_form(deployment)
        form.fill({"request": request("/home/me/my-evals"), "config": CONFIG})
        ui.page.set_viewport_size({"width": WIDTH, "height": 1420})
        ui.page.get_by_text("Deployments").last.scroll_into_view_if_needed()
        ui.screenshot(to / "request.png")

        ui.page.set_viewport_size({"width": WIDTH, "height": 880})
        form = ui.run_form(deployment)
        form.fill({"request": request(str(EXAMPLES)), "config": CONFIG})
        run = form.submit()
        cloud.wait_for(run, "PAUSED")
        ui.resume(run, picture=to / "approval.png")

        until("two busy instances", lambda: all_busy(cloud, run), seconds=120)
        keep(ui, to / "workers.png", lambda: ui.artifact(artifact(cloud, run, "fleet-workers")["id"]), height=720)
        cloud.wait_for(run, "COMPLETED")
        keep(ui, to / "run.png", lambda: ui.flow_run(run, "Subflow Runs"), height=1020)
        keep(ui, to / "report.png", lambda: ui.artifact(artifact(cloud, run, "eval-report")["id"]), height=1030)
        worker = cloud.workers_of(run)[0]["id"]
        keep(ui, to / "worker.png", lambda: ui.flow_run(worker, "Task Runs"))
        (step,) = [one for one in cloud.task_runs(worker) if one["name"] == "run-jobs"]
        keep(ui, to / "step.png", lambda: ui.task_run(step["id"]), height=720)


def keep(ui: PrefectUI, to: Path, open_page: Callable[[], None], *, height: int = 900) -> None:
    """Keep a page once it has drawn itself."""
    ui.page.set_viewport_size({"width": WIDTH, "height": height})
    open_page()
    time.sleep(SETTLE_S)
    ui.screenshot(to)


def artifact(cloud: CloudUnderTest, run: str, key: str) -> dict[str, Any]:
    """A run's artifact; empty: not there yet."""
    filters = {"artifacts": {"flow_run_id": {"any_": [run]}, "key": {"any_": [key]}}}
    found: list[dict[str, Any]] = cloud.prefect("artifacts/filter", filters)
    return found[0] if found else {}


def all_busy(cloud: CloudUnderTest, run: str) -> bool:
    """Whether each of the run's instances has done a good part of its work and is at more."""
    rows = json.loads(artifact(cloud, run, "fleet-workers").get("data", "[]"))
    return len(rows) == 2 and all(row["samples"] >= 20 and row["busy"] == "2/2" for row in rows)


def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    of_the_command(folder)
    of_the_ui(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
