"""A real AWS API for this room: moto's server over HTTP on loopback, one for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from fleet.aws.session import Aws
from tests.fleet.local.conftest import host

__all__ = ["host"]  # the local cloud's own, for what plain moto doesn't refuse

REGION = "us-east-1"


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws_environment(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of someone whose account is the emulator's, and nothing of the person who runs the tests."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture(scope="session")
def boto() -> boto3.Session:
    """One for all tests: it keeps what botocore knows of each service, which takes most of a second to read."""
    return boto3.Session("testing", "testing", region_name=REGION)


@pytest.fixture
def aws(aws_environment: None, boto: boto3.Session) -> Aws:
    return Aws(REGION, session=boto)


@pytest.fixture
def unique() -> str:
    """A word that no other test uses: the server outlives them all."""
    return uuid4().hex[:12]


def fail(
    client: Any, operation: str, code: str, message: str = "", *, status: int = 400, times: int = 10**9, about: str = ""
) -> None:
    """Let this client's next `times` calls of `operation` that name `about` fail as AWS would fail them, without sending them."""
    left = iter(range(times))

    def hook(params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
        if about not in str(params["body"]) or next(left, None) is None:
            return None
        error = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
        return SimpleNamespace(status_code=status), error

    client.meta.events.register(f"before-call.{client.meta.service_model.service_name}.{operation}", hook)


def reply(client: Any, operation: str, parsed: dict[str, Any]) -> None:
    """Let this client's calls of `operation` get this answer, without sending them."""
    client.meta.events.register(
        f"before-call.{client.meta.service_model.service_name}.{operation}",
        lambda **_: (SimpleNamespace(status_code=200), parsed),
    )
