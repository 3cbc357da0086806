from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.environment import JobEnvironment
from tests.job_environment import kit_environment


@pytest.fixture(scope="session")
def job_environments(request: pytest.FixtureRequest) -> Path:
    """Where built environments are kept between test runs."""
    return Path(request.config.cache.mkdir("job-environments"))


@pytest.fixture(scope="session")
def environment(job_environments: Path) -> JobEnvironment:
    """A job environment with evalkit in it."""
    return kit_environment(job_environments)
