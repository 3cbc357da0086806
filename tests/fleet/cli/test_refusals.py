"""What can't be run as it stands: one line, exit code 2, and nothing created, here or in a cloud that runs.

The rows of `REFUSED` are all of it; a new refusal is a new row.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet.local.preset import BUCKET
from tests.checkouts import made
from tests.cloud import CloudUnderTest, Finished, finish
from tests.job_environment import KIT, kit_environment
from tests.processes import processes_with

pytestmark = pytest.mark.cloud

PROGRESS = re.compile(r"\[ *\d+\.\d+s\] ")
"""How a line begins that says what is being done."""


@dataclass(frozen=True)
class Refused:
    """A way to ask for something that can't be, and what the command says to it."""

    what: str
    said: str
    """Regular expression of the whole line, after `error: `."""
    options: tuple[str, ...] = ()
    task: str = "evalkit/plain"
    model: str = "kit/model"
    source: str = str(KIT)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("run", self.task, "--model", self.model, "--source", self.source, "--json", *self.options)


REFUSED = [
    Refused("unknown task", r"task evalkit/plian is unknown: .*did you mean evalkit/plain or .*\?", task="evalkit/plian"),
    Refused("unknown provider", r"model nowhere/model is unknown: .*", model="nowhere/model"),
    Refused("unknown eval option", r"eval_config has no key epoch; did you mean epochs.*\?", ("--eval-arg", "epoch=2")),
    Refused("missing file", r"absent\.py is missing \(task absent\.py@plain\): .*", task="absent.py@plain"),
    Refused(
        "unresolvable packages",
        r"packages refused \(click<7, click>8\): .*unsatisfiable.*",
        ("--package", "click<7", "--package", "click>8"),
    ),
    Refused("secret that isn't set", r"no value for NEVER_SET_KEY: export it .*", ("--secret", "NEVER_SET_KEY")),
    Refused("unreadable source", r"source /nowhere/at/all can't be packed: there is no such folder", source="/nowhere/at/all"),
    Refused("unreadable setting", r"setting /nowhere/kit refused: there is no such folder", ("--setting", "/nowhere/kit")),
    Refused("unknown fleet option", r"--ec2-arg spto=true: spto: extra inputs .*", ("--ec2-arg", "spto=true")),
    Refused("nobody to approve", r"a launch needs approval, .* auto_confirm=true .*", ("--ec2-arg", "auto_confirm=false")),
    Refused("no setup script", r"worker_setup setup.sh refused: no such file .*", ("--ec2-arg", "worker_setup=setup.sh")),
    Refused("place for logs that can't be", r"log_dir 'ftp://host' can't be used: .*", ("--log-dir", "ftp://host")),
]  # fmt: skip
each = pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.what)


def expect_refusal(done: Finished, row: Refused) -> None:
    assert done.code == 2, done.err
    assert done.out == "", "with --json stdout is for the one document"
    *before, last = done.err.splitlines()
    assert [line for line in before if not PROGRESS.match(line)] == []
    assert re.fullmatch(f"error: {row.said}", last), last


@pytest.fixture(scope="module")
def cache(request: pytest.FixtureRequest) -> Path:
    """A cache folder of this process's tests, with the kit's job environment in it: no other local cloud is in there."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    folder = Path(request.config.cache.mkdir(f"job-environments-{worker}"))
    kit_environment(folder)
    return folder


@pytest.fixture
def alone(cache: Path, tmp_path: Path) -> Callable[..., Finished]:
    """The command in an empty folder, with that cache and nothing of this process's configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_", "FLEET_"))}
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(*arguments: str) -> Finished:
        return finish(
            subprocess.Popen(
                [sys.executable, "-m", "fleet.cli.main", *arguments],
                env={**kept, "FLEET_CACHE_DIR": str(cache), "TMPDIR": str(scratch), "NEVER_SET_KEY": ""},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
            )
        )

    return run


# However a request is refused, its cloud is called off in one way: at once, while planning, and for a fleet's option.
@pytest.mark.parametrize(
    "row",
    [row for row in REFUSED if row.what in ("unknown task", "missing file", "nobody to approve", "no setup script")],
    ids=lambda row: row.what,
)
@pytest.mark.fault("request-refused")
def test_a_refused_request_calls_its_own_cloud_off(
    row: Refused, alone: Callable[..., Finished], cache: Path, tmp_path: Path
) -> None:
    """The cloud starts beside the planning, so that there is something to call off."""
    expect_refusal(alone(*row.arguments, "--local-cloud"), row)
    assert processes_with(f"FLEET_CACHE_DIR={cache}") == {}
    assert list((cache / "local").glob("*")) == [], "neither a folder nor a lock"
    assert [path.name for path in tmp_path.rglob("*")] == ["scratch"]


@pytest.mark.parametrize("row", [row for row in REFUSED if "--ec2-arg" not in row.options], ids=lambda row: row.what)
@pytest.mark.fault("request-refused")
def test_this_machine_refuses_the_same(row: Refused, alone: Callable[..., Finished], tmp_path: Path) -> None:
    expect_refusal(alone(*row.arguments, "--backend", "local"), row)
    assert [path.name for path in tmp_path.rglob("*")] == ["scratch"]


def test_a_setting_whose_sync_fails_ends_the_run_before_it_exists(
    alone: Callable[..., Finished], tmp_path: Path
) -> None:
    checkout = made(
        tmp_path / "tools", {"pyproject.toml": "[project]\nname='tools'\nversion='1'\ndependencies=['x y']\n"}
    )
    said = r"the job environment can't be built \(uv sync in \.settings/tools\): .*"
    row = Refused("setting that doesn't sync", said, ("--setting", str(checkout)))
    expect_refusal(alone(*row.arguments, "--local-cloud"), row)


@each
@pytest.mark.fault("request-refused")
def test_a_refused_request_leaves_no_trace_in_a_cloud_that_runs(row: Refused, cloud: CloudUnderTest) -> None:
    began = datetime.now(UTC)
    before = everything(cloud, began)
    expect_refusal(cloud.fleet(*row.arguments, "--local-cloud", NEVER_SET_KEY=""), row)
    assert everything(cloud, began) == before


def test_a_fleet_that_costs_money_is_not_launched_unasked(cloud: CloudUnderTest) -> None:
    """An account of one's own: without --local-cloud, whose fleets need no approval."""
    (row,) = (row for row in REFUSED if row.what == "nobody to approve")
    began = datetime.now(UTC)
    before = everything(cloud, began)
    plain = Refused(row.what, row.said)
    expect_refusal(finish(cloud.start(*plain.arguments, **cloud.local.environment())), plain)
    assert everything(cloud, began) == before


def everything(cloud: CloudUnderTest, began: datetime) -> dict[str, Any]:
    """What there is in the cloud, by name or by number; of task runs, which the server records late, those that began then."""
    parameters = cloud.aws("ssm").get_paginator("describe_parameters").paginate()
    return {
        "flow runs": cloud.prefect("flow_runs/count", {}),
        "task runs": cloud.prefect("task_runs/count", {"task_runs": {"start_time": {"after_": began.isoformat()}}}),
        "artifacts": cloud.prefect("artifacts/count", {}),
        "deployments": cloud.prefect("deployments/count", {}),
        "queues": cloud.aws("sqs").list_queues().get("QueueUrls", []),
        "objects": [found["Key"] for found in cloud.aws("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])],
        "parameters": [found["Name"] for page in parameters for found in page["Parameters"]],
        "instances": [found["InstanceId"] for found in cloud.living_instances()],
    }
