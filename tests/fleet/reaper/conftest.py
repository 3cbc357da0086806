"""The emulator of the AWS room."""

from __future__ import annotations

from tests.fleet.aws.conftest import aws, aws_environment, boto, moto_endpoint, unique

__all__ = ["aws", "aws_environment", "boto", "moto_endpoint", "unique"]
