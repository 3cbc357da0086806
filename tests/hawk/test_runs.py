"""`fleet run --backend hawk` on Hawk's real server with its real runner: the same results as elsewhere, and one life at Hawk."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from fleet.evals.rates import FIELDS
from fleet.hawk.api import OVER
from tests.cloud import CloudUnderTest, finish
from tests.hawk.at import At
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


@pytest.fixture
def at(cloud: CloudUnderTest, deployment: Hawk, kit: Published) -> At:
    return At(cloud, deployment, kit)


def test_a_request_comes_to_the_same_on_this_machine_on_the_fleet_and_on_hawk(at: At, tmp_path: Path) -> None:
    """Results, reductions, scores and metrics, sample by sample and field by field."""
    (tmp_path / "prices.json").write_text(json.dumps({"kit/known": dict.fromkeys(FIELDS, 1000)}))
    asked = ("--eval-arg", "epochs=2", "--model-cost-config", str(tmp_path / "prices.json"))
    ways: dict[str, Sequence[str]] = {
        "local": ("--backend", "local"),
        "fleet": ("--local-cloud", "--ec2-arg", "max_workers=2"),
        "hawk": ("--backend", "hawk"),
    }
    logs = {name: at.logs(TASKS, *asked, "--log-dir", str(tmp_path / name), *way) for name, way in ways.items()}
    for task in TASKS:
        for name, own in (("fleet", {}), ("hawk", OF_ITS_OWN)):
            found = compare(logs["local"][task], logs[name][task], unequal=own)
            assert [str(one) for one in found.differences] == [], f"{task} on {name}"
            assert found.count > 500
            assert cost_of(logs[name][task]) == pytest.approx(cost_of(logs["local"][task]))
            assert cost_of(logs[name][task]) > 0
            assert set(found.fields) >= {"header.results", "reductions.*", "sample.scores", "summary.scores"}


def cost_of(log: Path) -> float:
    """Dollars, of all calls of its models."""
    return sum(usage.total_cost or 0 for usage in read_eval_log(log, header_only=True).stats.model_usage.values())


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
