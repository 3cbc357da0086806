"""A scripted deployment, and each of the two clients to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fleet.hawk.calls import HawkCalls
from fleet.hawk.connect import Hawk
from fleet.hawk.plain import PlainCalls
from tests.hawk_server import TOKEN, HawkServer, hawk_server


@pytest.fixture
def server() -> Iterator[HawkServer]:
    with hawk_server() as deployment:
        yield deployment


@pytest.fixture(params=["plain", pytest.param("package", marks=pytest.mark.hawk)])
def client(request: pytest.FixtureRequest) -> Callable[[str], HawkCalls]:
    if request.param == "plain":
        return PlainCalls
    from fleet.hawk.package import PackageCalls

    return PackageCalls


@pytest.fixture
def hawk(server: HawkServer, client: Callable[[str], HawkCalls]) -> Hawk:
    return Hawk(client(server.address), lambda: TOKEN)
