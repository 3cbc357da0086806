"""The names that a secret can't have are those that would not reach a job: the list and what starts a job agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from bootstrap.git_access import git_variables
from bootstrap.job_variables import OURS, ROOTS_CACHE
from bootstrap.registry import DOCKER_CONFIG
from fleet.evals.documents import EnvironmentSpec
from fleet.evals.variable_names import RESERVED, name_problem

ENVIRONMENT = JobEnvironment(
    spec=EnvironmentSpec(python="3.11", lock=""), python=Path("/e/venv/bin/python"), source=None
)


def test_what_every_job_gets_is_refused_as_a_secret() -> None:
    allowed_anyway = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"}
    settled = job_process.variables(ENVIRONMENT, {}).keys() - allowed_anyway
    assert settled
    for name in settled:
        assert name_problem(name), name


@pytest.mark.parametrize("name", [*RESERVED, "OPENAI_API_KEY", "INSPECT_EVAL_LIMIT", "INSPECT_LOG_DIR", "PREFECT_X"])
def test_a_secret_that_is_not_refused_arrives_as_it_is(name: str) -> None:
    arrived = job_process.variables(ENVIRONMENT, {name: "given"}).get(name)
    assert arrived == "given" or name_problem(name)


def test_what_host_steps_put_in_its_place_is_refused() -> None:
    """The way to GitHub, the registry's login, the cache of another user."""
    for name in {DOCKER_CONFIG, ROOTS_CACHE, *git_variables({}, Path("/hosts"), token=True)} - {"GIT_TERMINAL_PROMPT"}:
        assert name_problem(name), name


def test_what_is_kept_from_runners_is_refused() -> None:
    for prefix in OURS:
        assert name_problem(f"{prefix}SOMETHING")
