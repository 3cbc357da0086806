"""`fleet run --backend hawk` at a deployment of the tests, and that deployment as a stranger sees it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from fleet.hawk.api import SampleCounts
from fleet.hawk.connect import Hawk as Client
from fleet.hawk.plain import PlainCalls
from tests.cloud import CloudUnderTest, Finished, finish, until
from tests.hawk.published import Published
from tests.hawk.server import Hawk
from tests.hawk.test_api import ENVIRONMENT_S


class At:
    """The command, and the deployment as a stranger sees it."""

    def __init__(self, cloud: CloudUnderTest, hawk: Hawk, kit: Published) -> None:
        self.cloud, self.hawk, self.kit = cloud, hawk, kit
        self.api = Client(PlainCalls(hawk.address), hawk.token)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`fleet run` with the package of evals, its flow run at the cloud's Prefect."""
        source = ("--source", str(self.kit.checkout), "--package", f"inspect-ai=={version('inspect-ai')}")
        found = {
            "HAWK_API_URL": self.hawk.address,
            "HAWK_ACCESS_TOKEN": self.hawk.token(),
            "PREFECT_API_URL": self.cloud.local.prefect_api,
        }
        return self.cloud.start("run", *words, "--model", "kit/known", *source, "--json", **found)

    def run(self, *words: str) -> Finished:
        """The same to its end."""
        return finish(self.start(*words), seconds=900)

    def logs(self, tasks: Sequence[str], *words: str) -> dict[str, Path]:
        """The logs of a run that went well, by task."""
        done = self.run(*tasks, *words)
        assert done.code == 0, done.err
        return {one["task"]: Path(one["log"]) for one in done.report["evals"]}

    def begun(self, before: Sequence[str]) -> str:
        """The eval set that wasn't there before, once its samples run."""
        (eval_set,) = until(
            "an eval set is launched", lambda: set(self.hawk.started()) - set(before), seconds=ENVIRONMENT_S
        )
        until("its samples run", lambda: self.counts(eval_set).running, seconds=ENVIRONMENT_S, every=1.0)
        return eval_set

    def counts(self, eval_set: str) -> SampleCounts:
        """Its samples."""
        return self.api.eval_set_status(eval_set).progress
