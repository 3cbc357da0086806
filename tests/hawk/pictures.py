"""The documentation's pictures of a run on Hawk, taken of a real one: `python -m tests.hawk.pictures DIR`.

It needs what `make hawk` does, and Chromium; it takes minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.cloud import CloudUnderTest, a_cloud, finish, until
from tests.hawk.at import At
from tests.hawk.published import published
from tests.hawk.server import hawk
from tests.hawk.test_api import ENVIRONMENT_S
from tests.hawk.tools import tools
from tests.ui.browser import a_browser
from tests.ui.pictures import NAME, artifact, keep
from tests.ui.prefect_ui import PrefectUI

REQUEST = (
    *("evalkit/plain", "evalkit/numbered", "-T", "count=100"),
    *("-M", "delay=2", "--generate-arg", "max_connections=4", "--backend", "hawk"),
)
"""Lasts long enough to be looked at."""


def of_hawk(at: At, ui: PrefectUI, to: Path) -> None:
    """Its tasks in the middle of their work, then its time line."""
    with tempfile.TemporaryDirectory() as logs:
        begun = at.hawk.started()
        command = at.start(*REQUEST, "--log-dir", logs)
        at.begun(begun)
        run = until("its flow run", at.cloud.newest_run, seconds=30)
        table = until("one of two tasks done", lambda: well_on(at.cloud, run), seconds=ENVIRONMENT_S)
        keep(ui, to / "hawk-tasks.png", lambda: ui.artifact(table), height=560)
        assert finish(command, seconds=ENVIRONMENT_S).code == 0
        at.cloud.steps(run, among={"deliver"})  # which the page shows once the server has them all
        keep(ui, to / "hawk.png", lambda: ui.flow_run(run), height=1020)


def well_on(cloud: CloudUnderTest, run: str) -> str:
    """The id of the table of tasks, once one is done and the other at work; empty: not now."""
    found = artifact(cloud, run, "hawk-tasks")
    rows = json.loads(found.get("data", "[]"))
    states = {row["state"] for row in rows if row["state"] == "success" or row["running"]}
    return str(found["id"]) if len(states) == 2 else ""


def main(folder: Path) -> None:
    """Take both pictures."""
    with tempfile.TemporaryDirectory() as scratch, a_cloud(NAME) as cloud, a_browser() as browser:
        kit = published(Path(scratch))
        with hawk(tools(print), runner=kit.environment) as deployment:
            ui = PrefectUI(browser.new_context().new_page(), cloud.local.prefect_ui)
            of_hawk(At(cloud, deployment, kit), ui, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
