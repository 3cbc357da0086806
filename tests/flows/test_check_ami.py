"""The check as a flow's step: what it asks for, and what it says. The judging itself is tests/fleet/aws/test_images.py."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from fleet.aws.images import CONTRACT, CONTRACT_TAG, VolumeTooSmall
from flows import check_ami as room
from tests.fleet.aws.conftest import REGION, aws_environment, moto_endpoint, unique

__all__ = ["aws_environment", "moto_endpoint", "unique"]


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
