"""Inspect's Docker sandbox against a real engine, without a fleet: what a worker does once a host is ready."""

from pathlib import Path

import pytest
from inspect_ai import eval as inspect_eval

from fleet_examples.elements_shell import elements_shell
from fleet_examples.scripted import provider
from tests.docker.conftest import Engine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


def test_an_agent_counts_in_containers_and_leaves_none_behind(docker: Engine, tmp_path: Path) -> None:
    assert provider.scripted
    [log] = inspect_eval(
        elements_shell(sandbox="docker"),
        model="scripted/chemist",
        sample_id=["block-f", "group-11"],
        log_dir=str(tmp_path),
        display="none",
    )
    assert log.status == "success", log.error
    assert {str(sample.id): sample.output.completion for sample in log.samples or []} == {
        "block-f": "28",
        "group-11": "4",
    }
    assert docker.docker("ps", "--all", "--quiet") == ""


def test_the_engine_has_addresses_for_more_networks_than_docker_has_by_default(docker: Engine) -> None:
    """A fleet worker needs a network a sample; Docker's own pool ends at about thirty."""
    if not docker.environment:
        pytest.skip("the machine's own engine is used, and its address pool is the machine's affair")
    names = [f"fleet-test-{number}" for number in range(40)]
    try:
        for name in names:
            docker.docker("network", "create", name)
    finally:
        made = [name for name in docker.docker("network", "ls", "--format", "{{.Name}}").split() if name in names]
        docker.docker("network", "rm", *made)
    assert made
    assert len(made) == 40
