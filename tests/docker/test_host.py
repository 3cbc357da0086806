"""The check of a host against a real engine, which was given its address pool by flags and has no daemon.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.host import COMPOSE_AT_LEAST, ENGINE_AT_LEAST, DockerUnreachable, check_docker, version
from tests.docker.conftest import Engine

pytestmark = pytest.mark.docker


def test_an_engine_whose_pool_was_set_by_flags_is_fit(docker: Engine, tmp_path: Path) -> None:
    facts = check_docker(daemon_file=tmp_path / "there-is-none.json")
    assert facts.pools == [("10.224.0.0/11", 24)]
    assert version(facts.engine) >= ENGINE_AT_LEAST
    assert version(facts.compose) >= COMPOSE_AT_LEAST


def test_an_engine_that_is_not_there_is_told_with_the_clients_words(
    docker: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(DockerUnreachable, match=r"no\.sock.*DOCKER_HOST"):
        check_docker()
