"""The emulated account, which was filled from the template, and a person in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fleet.aws.session import Aws
from tests.fleet.local.conftest import Host, start_host


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One for each file: what its tests take away is not missed elsewhere."""
    running = start_host(tmp_path_factory.mktemp("host"))
    yield running
    assert running.stop() == 0


@pytest.fixture
def person(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a person of that account, with no Prefect API."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "PREFECT_")):
            monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": host.aws,
        "AWS_ACCESS_KEY_ID": "person",
        "AWS_SECRET_ACCESS_KEY": "person",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "PREFECT_PROFILES_PATH": str(host.folder / "profiles.toml"),
        "PREFECT_HOME": str(host.folder / "prefect"),
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def aws(person: None) -> Aws:
    return Aws("us-east-1")
