"""`fleet run --backend hawk` on Hawk's real server with its real runner: the same results as elsewhere, and one life at Hawk."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from fleet.hawk.api import OVER, SampleCounts
from fleet.hawk.connect import Hawk as Client
from fleet.hawk.plain import PlainCalls
from tests.cloud import CloudUnderTest, Finished, finish, until
from tests.hawk.published import Published
from tests.hawk.server import Hawk
from tests.hawk.test_api import ENVIRONMENT_S
from tests.parity.compare import compare

pytestmark = [pytest.mark.hawk, pytest.mark.timeout(1800)]

TASKS = ("evalkit/plain", "evalkit/numbered", "evalkit/epochal", "evalkit/dicts")
OF_ITS_OWN = {
    "is how Hawk's runner runs every eval: samples at a time, how the log is written, and that no error stops other samples": tuple(
        f"header.eval.config.{name}"
        for name in ("continue_on_fail", "log_model_api", "log_shared", "max_samples", "max_sandboxes", "max_tasks")
    ),
    "is what Hawk writes down about whose the eval is": (
        "header.eval.eval_set_id",
        "header.eval.metadata",
        "header.eval.metadata.created_by",
        "header.eval.metadata.eval_set_id",
        "header.metadata.created_by",
        "header.metadata.eval_set_id",
    ),
    "says that the package was installed from git": ("header.eval.revision",),
    "counts lines of Inspect's own display, which are events of whatever sample runs as they are printed": (
        "event counts.logger",
    ),
}
"""What a log of Hawk's has beside what no two logs have equal, and why. All else is equal."""


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
        return self.cloud.start("run", *words, "--model", "kit/one", *source, "--json", **found)

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


@pytest.fixture
def at(cloud: CloudUnderTest, deployment: Hawk, kit: Published) -> At:
    return At(cloud, deployment, kit)


def test_a_request_comes_to_the_same_on_this_machine_on_the_fleet_and_on_hawk(at: At, tmp_path: Path) -> None:
    """Results, reductions, scores and metrics, sample by sample and field by field."""
    epochs = ("--eval-arg", "epochs=2")
    ways: dict[str, Sequence[str]] = {
        "local": ("--backend", "local"),
        "fleet": ("--local-cloud", "--ec2-arg", "max_workers=2"),
        "hawk": ("--backend", "hawk"),
    }
    logs = {name: at.logs(TASKS, *epochs, "--log-dir", str(tmp_path / name), *way) for name, way in ways.items()}
    for task in TASKS:
        for name, own in (("fleet", {}), ("hawk", OF_ITS_OWN)):
            found = compare(logs["local"][task], logs[name][task], unequal=own)
            assert [str(one) for one in found.differences] == [], f"{task} on {name}"
            assert found.count > 500
            assert set(found.fields) >= {"header.results", "reductions.*", "sample.scores", "summary.scores"}


def test_a_run_whose_controller_is_killed_is_followed_by_the_same_command(at: At, tmp_path: Path) -> None:
    """Nothing is posted twice, and what had begun comes to its end."""
    before = at.hawk.started()
    request = ("evalkit/slow", "-T", "seconds=90", "--backend", "hawk", "--log-dir", str(tmp_path))
    first = at.start(*request)
    eval_set = at.begun(before)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    again = at.run(*request)
    assert again.code == 0, again.err
    assert at.hawk.started().count(eval_set) == 1
    (one,) = again.report["evals"]
    assert (one["status"], one["samples_done"]) == ("success", 2)
    assert Path(one["log"]).parent == tmp_path


def test_a_run_cancelled_in_the_ui_ends_at_hawk(at: At, cloud: CloudUnderTest, tmp_path: Path) -> None:
    """The eval set is over when the command has ended, and so says its flow run."""
    before = at.hawk.started()
    command = at.start("evalkit/slow", "--backend", "hawk", "--log-dir", str(tmp_path))
    eval_set = at.begun(before)
    run = cloud.newest_run()
    assert run
    cloud.prefect(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": False})
    done = finish(command, seconds=ENVIRONMENT_S)
    assert done.code == 1
    assert "was cancelled" in done.err
    status = at.api.job_status(eval_set)
    assert status is None or status.status in OVER
    assert cloud.prefect(f"flow_runs/{run}")["state"]["type"] == "CANCELLED"
