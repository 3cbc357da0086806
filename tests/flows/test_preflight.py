"""The check of permissions as a flow and as a run's step, called without a Prefect server, against the local cloud."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from fleet.aws.permissions import PERMISSIONS, PermissionsMissing
from fleet.local import preset
from fleet.local.faults import FaultKit
from flows import preflight as room
from tests.fleet.local.conftest import Host, host

__all__ = ["host"]


@pytest.fixture
def account(host: Host, monkeypatch: pytest.MonkeyPatch) -> FleetAccount:
    monkeypatch.setenv("AWS_ENDPOINT_URL", host.aws)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "person")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "person")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    found = FleetAccount(bucket=preset.BUCKET)
    monkeypatch.setattr(FleetAccount, "load", lambda *_, **__: found)
    return found


@pytest.fixture
def kit(host: Host) -> Iterator[FaultKit]:
    found = FaultKit(host.aws)
    found.clear()
    yield found
    found.clear()


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The rows of the table that the flow shows."""
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(room, "create_table_artifact", lambda rows, **_: shown.extend(rows))
    monkeypatch.setattr(room, "get_run_logger", lambda: logging.getLogger("preflight"))
    return shown


def call(function: Any, *arguments: Any, **named: Any) -> None:
    with disable_run_logger():
        function.fn(*arguments, **named)


def test_the_flow_shows_every_permission_that_a_run_needs(account: FleetAccount, table: list[dict[str, str]]) -> None:
    call(room.preflight, Ec2Config())
    assert [(row["role"], row["permission"]) for row in table] == [
        (role, one.action) for role in ("controller", "launcher") for one in PERMISSIONS[role]
    ]
    assert {row["outcome"] for row in table} == {"allowed"}
    assert {row["permission"]: row["without it"] for row in table}["ec2:RunInstances"] == "nothing works"


@pytest.mark.fault("permission-missing")
def test_a_missing_permission_fails_the_flow_after_the_table(
    account: FleetAccount, table: list[dict[str, str]], kit: FaultKit
) -> None:
    kit.fault("PutParameter", code="AccessDeniedException", times=None)
    kit.fault("RunInstances", match="DryRun", code="UnauthorizedOperation", status=403, times=None)
    with pytest.raises(PermissionsMissing, match=r"ssm:PutParameter: needed to hand each instance its secrets"):
        call(room.preflight, Ec2Config(spot=True))
    assert {row["permission"] for row in table if row["outcome"] == "missing"} == {
        "ssm:PutParameter",
        "ec2:RunInstances",
    }


def test_an_image_that_cannot_be_launched_leaves_the_rest_of_the_table(
    account: FleetAccount, table: list[dict[str, str]]
) -> None:
    call(room.preflight, Ec2Config(ami=preset.IMAGE_PENDING), role="launcher")
    outcomes = {row["permission"]: row["outcome"] for row in table}
    assert outcomes["ec2:DescribeImages"] == "allowed"
    assert outcomes["ec2:RunInstances"] == "allowed"  # by IAM's simulation: no launch could be tried


@pytest.mark.fault("permission-missing")
def test_a_run_without_secrets_need_not_write_any(account: FleetAccount, kit: FaultKit) -> None:
    kit.fault("PutParameter", code="AccessDeniedException", times=None)
    call(room.check_permissions, account, Ec2Config(), secrets=False)
    with pytest.raises(PermissionsMissing, match="ssm:PutParameter"):
        call(room.check_permissions, account, Ec2Config(), secrets=True)


def test_a_run_with_an_image_by_id_need_not_read_the_parameter(account: FleetAccount, kit: FaultKit) -> None:
    kit.fault("GetParameter", code="AccessDeniedException", times=None)
    call(room.check_permissions, account, Ec2Config(ami=preset.IMAGE), secrets=False)
    with pytest.raises(PermissionsMissing, match="ssm:GetParameter"):
        call(room.check_permissions, account, Ec2Config(), secrets=False)
