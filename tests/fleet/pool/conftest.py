"""The emulator of the AWS room, Prefect kept from sending logs anywhere, a pool worker on a bench, and worlds in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from fleet.aws.session import Aws
from fleet.pool.access import Access
from tests.fleet.aws.conftest import REGION, aws_environment, moto_endpoint, unique
from tests.fleet.pool.observed import World
from tests.fleet.pool.worker_bench import API, Bench

__all__ = ["access", "aws", "aws_environment", "moto_endpoint", "quiet_prefect", "unique"]


@pytest.fixture(scope="session")
def access() -> Access:
    """A pool worker's clients, shared by the tests: boto3 takes most of a second for each."""
    return Access()


@pytest.fixture
def aws(access: Access, aws_environment: None) -> Aws:
    clients = access.of(None, REGION)
    for client in (clients.ec2, clients.ec2_once, clients.ssm, clients.sts, clients.s3):
        assert client.meta.endpoint_url.startswith("http://127.0.0.1:")  # made in this environment, and kept
    return clients


@pytest.fixture
def quiet_prefect() -> Iterator[None]:
    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def bench(aws: Aws, access: Access) -> Iterator[Bench]:
    with temporary_settings({PREFECT_API_URL: API}):
        yield Bench(aws, access)
