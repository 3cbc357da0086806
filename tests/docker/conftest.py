"""A real Docker engine for the tests of this folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docker.registry import PROGRAM, Registry, is_there, serving

SCRIPT = Path(__file__).parent / "engine.sh"


@dataclass(frozen=True)
class Engine:
    """An engine that answers, with the image `fleet-examples-shell` in it."""

    environment: dict[str, str]
    """What clients need beside their own environment; empty where the machine's own engine is used."""

    def docker(self, *arguments: str) -> str:
        """What the docker command prints."""
        done = subprocess.run(
            ["docker", *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine, for all tests; where there can be none they are skipped, and in CI, where there has to be one, they fail."""
    folder = Path(tempfile.mkdtemp(prefix="fleet-docker-"))  # pytest's own folders are too long for a socket's path
    started = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, timeout=280, check=False)
    try:
        if started.returncode != 0:
            reason = (started.stderr.strip().splitlines() or ["engine.sh start failed without a word"])[-1]
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI needs a Docker engine: {started.stderr.strip()}")
            pytest.skip(reason)
        yield Engine(dict(line.split("=", 1) for line in started.stdout.splitlines() if "=" in line))
    finally:
        subprocess.run([SCRIPT, "stop", folder], timeout=60, check=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def docker(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine, with this process pointed at it."""
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    return engine


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry on loopback; skipped where its program isn't, and in CI, where it has to be, failed."""
    if not is_there():
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs {PROGRAM}")
        pytest.skip(f"{PROGRAM} is not installed (.ci/prepare does it)")
    with serving(tmp_path_factory.mktemp("registry")) as running:
        yield running
