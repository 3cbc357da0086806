"""Inspect's Docker sandbox on a whole run: every instance finds its host fit, and no container or network outlives the run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from tests.cloud import EXAMPLES, a_cloud
from tests.docker.conftest import Engine

pytestmark = [pytest.mark.cloud, pytest.mark.docker, pytest.mark.timeout(600)]

SAMPLES, EPOCHS = 4, 2
REQUEST = (
    *(
        "fleet_examples/elements_shell",
        "--model",
        "scripted/chemist",
        "--source",
        str(EXAMPLES),
        "-T",
        "sandbox=docker",
    ),
    *("--eval-arg", f"limit={SAMPLES}", "--eval-arg", f"epochs={EPOCHS}", "--samples-per-job", "1"),
    *("--ec2-arg", "max_workers=2", "--local-cloud", "--json"),
)


@pytest.mark.long
def test_an_eval_in_containers_runs_on_the_fleet(docker: Engine, tmp_path: Path) -> None:
    """The cloud is one of its own: where the engine is, instances learn when their cloud starts."""
    containers, networks = living(docker)
    began = int(time.time())
    with a_cloud(f"docker-{os.getpid()}") as cloud:
        done = cloud.fleet("run", *REQUEST, "--log-dir", str(tmp_path), seconds=400)
        assert done.code == 0, done.err
        workers = cloud.workers_of(done.report["run"])
        assert [worker["state"]["type"] for worker in workers] == ["COMPLETED"] * 2
        for worker in workers:
            steps = ["check-gpu", "docker-login", "install-code", "prepare-host", "run-jobs"]
            assert cloud.steps(worker["id"], among=steps) == dict.fromkeys(steps, "COMPLETED")
            assert "networks from 10.224.0.0/11" in cloud.logs(worker["id"])
        assert cloud.left_behind() == []
    log = read_eval_log(done.report["evals"][0]["log"])
    assert log.status == "success"
    found = [(sample.id, sample.epoch) for sample in log.samples or []]
    assert len(found) == len(set(found)) == SAMPLES * EPOCHS
    assert {score.value for sample in log.samples or [] for score in (sample.scores or {}).values()} == {"C"}
    assert living(docker) == (containers, networks)
    assert len(made_since(docker, began)) == SAMPLES * EPOCHS, "a container for each, of this engine"


def living(docker: Engine) -> tuple[set[str], set[str]]:
    """Ids of all containers, running or not, and of all networks."""
    return (
        set(docker.docker("ps", "--all", "--quiet").split()),
        set(docker.docker("network", "ls", "--quiet").split()),
    )


def made_since(docker: Engine, began: int) -> list[str]:
    """Ids of the containers that were created since then."""
    events = ("events", "--since", str(began), "--until", str(int(time.time()) + 1), "--filter", "type=container")
    return docker.docker(*events, "--filter", "event=create", "--format", "{{.ID}}").split()
