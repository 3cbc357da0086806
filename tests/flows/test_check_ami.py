"""The check as a flow's step: what it asks for, and what it says. The judging itself is tests/fleet/aws/test_images.py."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from fleet.aws.images import (
    CONTRACT,
    CONTRACT_TAG,
    AmiAbsent,
    AmiNotReady,
    AmiParameterMissing,
    AmiRejected,
    AmiWrongArchitecture,
    VolumeTooSmall,
)
from fleet.local import preset
from fleet.local.faults import FaultKit
from flows import check_ami as room
from tests.fleet.aws.conftest import REGION, aws_environment, moto_endpoint, unique
from tests.fleet.local.conftest import Host, host, kit

__all__ = ["aws_environment", "host", "kit", "moto_endpoint", "unique"]


@pytest.fixture
def account(aws_environment: None, unique: str, monkeypatch: pytest.MonkeyPatch) -> FleetAccount:
    """An account whose image parameter names an image that another account owns."""
    found = FleetAccount(bucket="bucket", image_parameter=f"/{unique}/image")
    aws = found.site().aws
    image = aws.ec2.describe_images(Filters=[{"Name": "name", "Values": ["amzn2-ami-hvm*"]}])["Images"][0]
    aws.ssm.put_parameter(Name=found.image_parameter, Value=image["ImageId"], Type="String")
    monkeypatch.setattr(FleetAccount, "load", lambda *_, **__: found)
    return found


class Heard(logging.Handler):
    """What was said, by level."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    handler = Heard()
    logger = logging.Logger("check")
    logger.addHandler(handler)
    monkeypatch.setattr(room, "get_run_logger", lambda: logger)
    monkeypatch.setattr(room, "look", room.look.fn)
    return handler


def checked(config: Ec2Config) -> Any:
    with disable_run_logger():
        return room.check_ami.fn(config)


def test_the_image_is_named_with_what_it_is(account: FleetAccount, heard: Heard) -> None:
    found = checked(Ec2Config())
    (level, line), (warned, doubt) = heard.lines
    assert (level, warned) == ("INFO", "WARNING")
    assert line == found.line()
    assert f"(from {account.image_parameter}) in {REGION}: x86_64, contract not shown, made 20" in line
    assert f"{CONTRACT_TAG}={CONTRACT}" in doubt


def test_a_volume_that_the_image_does_not_fit_is_refused_before_launch(account: FleetAccount, heard: Heard) -> None:
    with pytest.raises(VolumeTooSmall):
        checked(Ec2Config(volume_gb=8))
    assert heard.lines == []


ABSENT = "ami-0123456789abcdef0"
UNFIT: list[tuple[str, str, type[AmiRejected], str]] = [
    ("pending", preset.IMAGE_PENDING, AmiNotReady, "its state is pending, not available"),
    ("failed", preset.IMAGE_FAILED, AmiNotReady, r"its state is failed \(.*Client error\), not available"),
    ("absent", ABSENT, AmiAbsent, r"InvalidAMIID\.NotFound"),
    ("malformed", "my-image", AmiAbsent, r"InvalidAMIID\.Malformed"),
    (
        "wrong architecture",
        preset.IMAGE_ARM64,
        AmiWrongArchitecture,
        "its architecture is arm64, but c7i.4xlarge takes x86",
    ),
    ("no such parameter", "/no/such/image", AmiParameterMissing, "the parameter that names it doesn't exist"),
]
CHANGES = (
    "RunInstances",
    "CreateFleet",
    "CreateLaunchTemplate",
    "CreateSecurityGroup",
    "CreateTags",
    "CreateQueue",
    "PutParameter",
    "PutObject",
)


@pytest.mark.parametrize(("ami", "error", "why"), [row[1:] for row in UNFIT], ids=[row[0] for row in UNFIT])
@pytest.mark.fault("ami-unfit")
def test_an_image_that_cannot_be_launched_is_refused_by_looks_alone(
    host: Host,
    kit: FaultKit,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    ami: str,
    error: type[AmiRejected],
    why: str,
) -> None:
    """The calls that are made, in an account that has images in these states: each is asked about once, and nothing is made."""
    for name, value in {"ENDPOINT_URL": host.aws, "ACCESS_KEY_ID": "person", "SECRET_ACCESS_KEY": "person"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(FleetAccount, "load", lambda *_, **__: FleetAccount(bucket=preset.BUCKET))
    kit.clear()
    with pytest.raises(error, match=f"worker image {ami} refused in {preset.REGION}: {why}"):
        checked(Ec2Config(ami=ami))
    asked = {call: kit.calls(call) for call in ("GetParameter", "DescribeImages", "DescribeInstanceTypes", *CHANGES)}
    assert {call: count for call, count in asked.items() if count} == {
        **({"GetParameter": 1} if error is AmiParameterMissing else {"DescribeImages": 1}),
        **({"DescribeInstanceTypes": 1} if error is AmiWrongArchitecture else {}),
    }
    assert heard.lines == []
