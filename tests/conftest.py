"""One local cloud for all whole runs: starting it takes longer than most of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.cloud import CloudUnderTest


# An example takes as long as the machine does; what it shows has nothing to do with it. In CI this builds on hypothesis's own
# profile for it.
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: tests that run side by side end together then. The faults that a test holds go along with its report."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    for item in items:
        for fault in (key for marker in item.iter_markers("fault") for key in marker.args):
            item.user_properties.append(("fault", fault))
            item.extra_keyword_matches.add(f"fault:{fault}")


@pytest.fixture(scope="session")
def shared_cloud() -> Iterator[CloudUnderTest]:
    from tests.cloud import a_cloud  # the fast tests load this file too

    with a_cloud(f"tests-{os.getpid()}") as cloud:
        yield cloud


@pytest.fixture(scope="module")
def prefect_api(shared_cloud: CloudUnderTest) -> Iterator[str]:
    """The address of a real Prefect server, to which this process's clients turn: the cloud's, since each takes long to start."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = shared_cloud.local.prefect_api
    with temporary_settings({PREFECT_API_URL: address}):
        yield address


@pytest.fixture
def cloud(shared_cloud: CloudUnderTest, record_property: Callable[[str, object], None]) -> Iterator[CloudUnderTest]:
    """The cloud, which holds nothing before and nothing after each test, and whose merged logs lack no finished sample."""
    from tests.lost import lost_samples

    assert shared_cloud.left_behind() == []
    began = datetime.now(UTC)
    yield shared_cloud
    lost, left = lost_samples(shared_cloud, began), shared_cloud.left_behind()
    record_property("lost", len(lost))
    record_property("left", len(left))
    assert (lost, left) == ([], [])
