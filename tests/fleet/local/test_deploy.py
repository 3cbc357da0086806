from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import yaml

from blocks.account import FleetAccount
from fleet.account.definition import deployments_file
from fleet.account.server import ACCOUNT_BLOCK
from fleet.local import deploy, preset
from fleet.pool.runs import DEPLOYMENT

DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load(deployments_file().read_text())["deployments"]
BY_NAME = {one["name"]: one for one in DEPLOYMENTS}


@pytest.mark.parametrize("one", DEPLOYMENTS, ids=lambda one: one["name"])
def test_a_deployment_holds_no_path_of_the_machine_that_deploys(one: dict[str, Any]) -> None:
    """A module path, and said explicitly that there is nothing to pull: else Prefect adds a step with this folder."""
    module, _, function = one["entrypoint"].rpartition(".")
    assert ":" not in one["entrypoint"]
    assert importlib.util.find_spec(module) is not None
    assert function
    assert one["pull"] == []


def test_each_deployment_has_its_pool() -> None:
    """Only workers are instances; whatever a person starts runs beside the pool worker."""
    pools = {name: one["work_pool"]["name"] for name, one in BY_NAME.items()}
    assert pools.pop("fleet-worker") == "ec2"
    assert {"run-eval", "nightly", "check-ami", "preflight"} <= pools.keys()
    assert set(pools.values()) == {"controllers"}


def test_the_nightly_eval_runs_one_at_a_time_in_a_time_zone_once_it_is_switched_on() -> None:
    nightly = BY_NAME["nightly"]
    assert nightly["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    (schedule,) = nightly["schedules"]
    assert schedule["active"] is False
    assert schedule["timezone"]
    assert len(schedule["cron"].split()) == 5


def test_runs_ask_for_the_worker_by_the_name_it_is_deployed_under() -> None:
    assert DEPLOYMENT.partition("/")[2] in BY_NAME


def test_the_accounts_block_names_what_the_emulated_account_holds() -> None:
    block = FleetAccount(**deploy.ACCOUNT)
    assert (block.region, block.bucket, block.image_parameter) == (preset.REGION, preset.BUCKET, preset.IMAGE_PARAMETER)
    assert ACCOUNT_BLOCK[0] == FleetAccount.get_block_type_slug()
