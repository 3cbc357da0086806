"""The watches of an instance as an order wants them, on this very host."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from bootstrap.notices import INTERRUPTION
from bootstrap.watches import Watches
from tests.bootstrap.metadata import FakeMetadata, serving
from tests.bootstrap.world import Script, World
from tests.worker_order import ORDER


def watched(folder: Path, *, needs_docker: bool) -> tuple[World, Watches]:
    """A worker with a long job, and its watches; there is no Docker."""
    world = World(folder / "jobs", 1)
    world.scripts[world.jobs[0]] = Script(seconds=1e6)
    order = ORDER.model_copy(update={"needs_docker": needs_docker})
    watches = Watches(
        order, [folder], docker={"PATH": str(folder)}, clockwork=world.time.clockwork(), say=world.said.append
    )
    world.beside = watches.beside()
    return world, watches


@pytest.mark.fault("host-stays-bad")
def test_a_host_without_the_engine_that_jobs_need_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    world, watches = watched(tmp_path, needs_docker=True)
    assert len(world.beside) == 1, "a machine without a metadata service isn't asked for notices"
    assert world.work() == ["host"]
    assert world.waiting() == world.jobs
    assert world.workers[0].why == "Docker's engine doesn't answer (the command docker is not installed)"
    assert "journalctl -u docker" in watches.advice


def test_a_host_says_why_it_is_unfit_whenever_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    _, watches = watched(tmp_path, needs_docker=True)
    assert anyio.run(watches.unfit).endswith("Docker's engine doesn't answer (the command docker is not installed)")


def test_a_notice_is_seen_by_this_instances_own_service_and_docker_is_not_missed_where_nobody_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(FakeMetadata(values={INTERRUPTION: '{"action": "stop", "time": "2026-01-01T00:00:00Z"}'})) as fake:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fake.endpoint)
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
        world, _ = watched(tmp_path, needs_docker=False)
        assert world.work() == ["interrupted"]
    assert world.waiting() == world.jobs
    assert world.workers[0].why == "EC2 takes this instance back (stop at 2026-01-01T00:00:00Z)"
