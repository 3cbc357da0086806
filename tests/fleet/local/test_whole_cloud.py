"""Whole local clouds: their processes, addresses and ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import boto3
import httpx
import pytest
import yaml

from fleet.account.definition import deployments_file
from fleet.local import cloud, preset, state
from fleet.local.cloud import CloudStatus, LocalCloud
from fleet.local.process_ref import wait_gone
from fleet.local.processes import MARK
from tests.cloud import until
from tests.fleet.local.conftest import PATIENCE
from tests.processes import processes_with

pytestmark = pytest.mark.cloud

NAME = f"whole-{os.getpid()}"
HOSTILE = {
    "PREFECT_API_URL": "http://127.0.0.1:9/api",
    "PREFECT_API_KEY": "theirs",
    "PREFECT_PROFILE": "theirs",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:////nowhere/theirs.db",
    "AWS_PROFILE": "theirs",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/nowhere/config",
}
"""A person's environment in which nothing would work."""


@pytest.fixture(scope="module")
def up() -> Iterator[LocalCloud]:
    """One cloud for the questions that change nothing, brought up from a hostile environment."""
    with pytest.MonkeyPatch.context() as theirs:
        for name, value in HOSTILE.items():
            theirs.setenv(name, value)
        found = cloud.up(NAME, owner_pid=os.getpid())
    try:
        yield found
    finally:
        assert cloud.down(NAME) == []


def prefect(up: LocalCloud, path: str, body: dict[str, Any] | None = None) -> Any:
    with httpx.Client(timeout=PATIENCE) as client:
        url = f"{up.prefect_api}{path}"
        answer = client.get(url) if body is None else client.post(url, json=body)
    answer.raise_for_status()
    return answer.json()


def marked(folder: Path) -> dict[int, str]:
    """Every process that carries the mark of the cloud, by its environment alone."""
    return processes_with(f"{MARK}={folder}")


def test_the_api_answers_with_everything_that_a_run_needs(up: LocalCloud) -> None:
    pools = {pool["name"]: pool for pool in prefect(up, "/work_pools/filter", {})}
    assert {name: pool["type"] for name, pool in pools.items()} == {"ec2": "ec2", "controllers": "process"}
    assert {pool["status"] for pool in pools.values()} == {"READY"}
    deployments = {one["name"]: one for one in prefect(up, "/deployments/filter", {})}
    assert deployments.keys() == {one["name"] for one in yaml.safe_load(deployments_file().read_text())["deployments"]}
    for one in deployments.values():
        assert one["path"] is None or not Path(one["path"]).is_absolute(), "no path of this machine"
        assert not one["pull_steps"]
    schedules = {
        name: [each["active"] for each in one["schedules"]] for name, one in deployments.items() if one["schedules"]
    }
    assert schedules == {"nightly": [False], "reap": [False]}
    block = prefect(up, "/block_types/slug/fleet-account/block_documents/name/default")
    assert block["data"]["bucket"] == preset.BUCKET


def test_the_ui_is_served(up: LocalCloud) -> None:
    page = httpx.get(up.prefect_ui, follow_redirects=True, headers={"accept": "text/html"}, timeout=PATIENCE)
    assert page.status_code == 200
    assert "<html" in page.text.lower()
    settings = httpx.get(f"{up.prefect_ui}/ui-settings", timeout=PATIENCE).json()
    assert settings["api_url"] == up.prefect_api


def test_the_emulated_account_holds_what_the_block_names(up: LocalCloud) -> None:
    s3 = boto3.client(
        "s3", endpoint_url=up.aws_endpoint, region_name=preset.REGION, aws_access_key_id="a", aws_secret_access_key="b"
    )
    assert preset.BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]


def test_every_part_is_well(up: LocalCloud) -> None:
    def healthy() -> CloudStatus | None:
        found = cloud.status(NAME)
        return found if found is not None and found.healthy else None

    # One look may find a busy machine's server too slow for it.
    found = until("every part is well", healthy)
    assert {part.part for part in found.parts} == {"supervisor", "host", "server", "workers"}


def test_up_again_finds_it(up: LocalCloud) -> None:
    said: list[str] = []
    assert cloud.up(NAME, say=said.append) == up
    assert said == [f"the local cloud {NAME} is already up"]


def test_nothing_of_the_persons_configuration_reaches_a_process(up: LocalCloud) -> None:
    pids = marked(up.folder)
    assert len(pids) >= 4
    for pid in pids:
        environ = Path(f"/proc/{pid}/environ").read_text()
        assert "theirs" not in environ
        assert "/nowhere" not in environ
        assert "127.0.0.1:9/" not in environ


def test_a_second_cloud_stands_beside_the_first(up: LocalCloud) -> None:
    other = cloud.up(f"{NAME}-b", controllers=False, owner_pid=os.getpid())
    try:
        assert {other.prefect_api, other.aws_endpoint}.isdisjoint({up.prefect_api, up.aws_endpoint})
        prefect(other, "/variables/", {"name": "only_there", "value": "x"})
        assert prefect(up, "/variables/filter", {}) == []
    finally:
        assert cloud.down(f"{NAME}-b") == []
    assert marked(other.folder) == {}
    assert not other.folder.exists()
    assert cloud.find(NAME) == up, "the first one is still there"


def test_a_killed_server_comes_back_at_its_address_with_its_data(up: LocalCloud) -> None:
    prefect(up, "/variables/", {"name": "kept", "value": "x"})
    known = state.read(up.folder)
    server = state.processes_of(known)["server"]
    server.signal(SIGKILL)
    assert wait_gone([server], 5)
    # The listening socket outlives the server: this request waits for the next one instead of failing.
    answer = httpx.get(f"{up.prefect_api}/variables/name/kept", timeout=60)
    assert answer.json()["value"] == "x"


def test_down_after_the_supervisor_was_killed_leaves_no_process() -> None:
    name = f"{NAME}-c"
    found = cloud.up(name, controllers=False, owner_pid=os.getpid())
    try:
        known = state.read(found.folder)
        assert known is not None
        known.supervisor.signal(SIGKILL)
        assert wait_gone([known.supervisor], 5)
        assert cloud.find(name) is None
        assert len(marked(found.folder)) >= 3, "the parts run on by themselves"
    finally:
        assert cloud.down(name) == []
    assert marked(found.folder) == {}
    assert not found.folder.exists()


def test_all_is_gone_when_the_owner_is_gone() -> None:
    """Also when the owner is killed: it can't say good-bye."""
    name = f"{NAME}-d"
    script = (
        "import os, sys, time; from fleet.local import cloud;"
        f"cloud.up({name!r}, controllers=False, owner_pid=os.getpid()); print('up', flush=True); time.sleep(300)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        folder = state.cloud_folder(name)
        assert marked(folder)
    finally:
        owner.kill()
        owner.communicate()
    end = time.monotonic() + 30
    while (marked(folder) or folder.exists()) and time.monotonic() < end:
        time.sleep(0.1)
    assert marked(folder) == {}
    assert not folder.exists()
