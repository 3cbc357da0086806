"""One deployment for all tests: starting it takes longer than what most of them do there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hawk.published import Published, published
from tests.hawk.server import Hawk, hawk
from tests.hawk.tools import tools


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The package of evals, published."""
    return published(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="session")
def deployment(kit: Published) -> Iterator[Hawk]:
    """A deployment whose runners can fetch the package."""
    with hawk(tools(print), runner=kit.environment) as one:
        yield one
        assert one.around.unknown == [], "Hawk asked its surroundings what these don't answer"
