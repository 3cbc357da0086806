"""The check of a host against a real engine, which was given its address pool by flags and has no daemon.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.host import (
    COMPOSE_AT_LEAST,
    ENGINE_AT_LEAST,
    INOTIFY,
    INOTIFY_INSTANCES,
    AddressPoolWrong,
    DockerUnreachable,
    check_docker,
    raise_inotify_limit,
    version,
)
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


def test_an_engine_with_another_pool_is_told_with_the_one_it_has(
    docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pool is the right one, so the one that is wanted is changed: a second engine would take half a minute."""
    monkeypatch.setattr("bootstrap.host.POOL_BASE", "10.96.0.0/11")
    with pytest.raises(AddressPoolWrong, match=r"is 10\.224\.0\.0/11 in /24s \(by the engine's answer\)"):
        check_docker()


def test_the_kernels_own_limit_is_raised_or_it_is_said_that_it_is_not() -> None:
    said = raise_inotify_limit()
    now = int(INOTIFY.read_text())
    assert (now >= INOTIFY_INSTANCES) == ("not raised" not in said), said
    assert now >= INOTIFY_INSTANCES or "sysctl -w fs.inotify.max_user_instances" in said
