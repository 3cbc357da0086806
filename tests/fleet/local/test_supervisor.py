from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIGKILL

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.cache import cache_folder
from fleet.local import environment, state, supervisor
from fleet.local.child import Command
from fleet.local.process_ref import ProcessRef
from fleet.local.state import CloudState
from fleet.local.supervisor import Restarts, Supervisor
from fleet.local.template import templates

ANSWERS = "import json, time; print(json.dumps({'aws': 'http://aws'}), flush=True); time.sleep(60)"
BREAKS = "raise SystemExit('it is broken')"
SILENT = "import time; time.sleep(60)"


class SmallCloud(Supervisor):
    """A supervisor whose parts are tiny: each runs one line of Python."""

    def __init__(self, folder: Path, code: dict[str, str], owner: ProcessRef | None = None) -> None:
        folder.mkdir(parents=True)
        self.code = {"host": ANSWERS, "server": ANSWERS, "workers": ANSWERS, **code}
        super().__init__("small", folder, controllers=True, owner=owner)

    def _command(self, part: str) -> Command:
        own = environment.own({}, folder=self.folder, part=part, cache=self.cache)
        code = self.folder / f"{part}_code.py"
        code.write_text(self.code[part])
        return Command(part, code.stem, [], own)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a small cloud lies: beside a database to begin with, so that nothing has to be made."""
    monkeypatch.setenv("FLEET_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(supervisor, "LOOK", 0.01)
    with closing(sqlite3.connect(tmp_path / "some.db")) as some:
        some.execute("create table t (x)")
    templates(cache_folder()).keep("cloud", tmp_path / "some.db")
    return state.cloud_folder("small")


@contextmanager
def running(cloud: SmallCloud) -> Iterator[SmallCloud]:
    thread = threading.Thread(target=cloud.run)
    thread.start()
    try:
        yield cloud
    finally:
        cloud.ending.set()
        thread.join(20)
        assert not thread.is_alive()
        assert [name for name, child in cloud.children.items() if child.process.alive()] == []


def seen(folder: Path, wanted: Callable[[CloudState], bool]) -> CloudState:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        known = state.read(folder) if folder.exists() else None
        if known and wanted(known):
            return known
        time.sleep(0.01)
    raise AssertionError(f"never seen; last: {known}")


def is_ready(known: CloudState) -> bool:
    return known.phase == "ready"


def test_all_parts_start_and_all_are_gone_at_the_end(folder: Path) -> None:
    with running(SmallCloud(folder, {})):
        known = seen(folder, is_ready)
        assert set(known.parts) == {"host", "server", "workers"}
        assert all(part.ready for part in known.parts.values())
        assert known.aws_endpoint == "http://aws"
    assert not folder.exists(), "nothing went wrong, so nothing is left to read"


def test_a_part_that_dies_is_started_again(folder: Path) -> None:
    with running(SmallCloud(folder, {})):
        first = seen(folder, is_ready).parts["server"].process
        assert first is not None
        first.signal(SIGKILL)
        again = seen(folder, lambda known: known.parts["server"].restarts == 1 and known.parts["server"].ready)
        assert again.parts["server"].why == "was killed by SIGKILL"
        assert again.parts["server"].process != first
        assert again.phase == "ready"


def test_a_part_that_dies_again_and_again_is_given_up(folder: Path) -> None:
    cloud = SmallCloud(folder, {})
    with running(cloud):
        one = seen(folder, is_ready).parts["workers"].process
        cloud.code["workers"] = BREAKS
        assert one is not None
        one.signal(SIGKILL)
        known = seen(folder, lambda known: known.parts["workers"].process is None)
        assert known.parts["workers"].why == "ended with exit code 1, too often to start it again"
        assert known.parts["workers"].restarts == Restarts().limit
        assert known.phase == "ready", "the other parts go on"


def test_a_part_that_does_not_start_ends_all_and_is_named(folder: Path) -> None:
    with running(SmallCloud(folder, {"host": BREAKS, "server": SILENT})):
        known = seen(folder, lambda known: known.phase == "failed")
        assert (known.failed_part, known.why) == ("host", "ended with exit code 1")
    assert state.tail(state.log_file(folder, "host")) == ["it is broken"], "its log is kept"


def test_a_part_that_never_answers_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 0.3)
    with running(SmallCloud(folder, {"host": SILENT})):
        known = seen(folder, lambda known: known.phase == "failed")
        assert (known.failed_part, known.why) == ("host", "wasn't ready after 0 s")


def test_it_can_be_told_to_end_while_it_starts(folder: Path) -> None:
    with running(SmallCloud(folder, {"server": SILENT})):
        seen(folder, lambda known: "server" in known.parts)
    assert not folder.exists()


def test_it_ends_when_its_owner_is_gone(folder: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", SILENT])
    cloud = SmallCloud(folder, {}, owner=ProcessRef.of(owner.pid))
    thread = threading.Thread(target=cloud.run)
    thread.start()
    seen(folder, is_ready)
    owner.kill()
    owner.wait()
    thread.join(20)
    assert not thread.is_alive()
    assert not folder.exists()


def test_pool_workers_follow_an_emulator_that_comes_back_elsewhere(folder: Path) -> None:
    cloud = SmallCloud(folder, {})
    with running(cloud):
        host = seen(folder, is_ready).parts["host"].process
        cloud.code["host"] = ANSWERS.replace("http://aws", "http://moved")
        assert host is not None
        host.signal(SIGKILL)
        known = seen(folder, lambda known: known.parts["workers"].restarts == 1 and known.parts["workers"].ready)
        assert known.aws_endpoint == "http://moved"


@given(st.lists(st.integers(0, 200), max_size=60), st.integers(1, 5), st.integers(1, 100))
def test_restarts_never_exceed_the_limit_in_any_window(gaps: list[int], limit: int, window: int) -> None:
    restarts, now, allowed = Restarts(limit, window), 0, []
    for gap in gaps:
        now += gap
        if restarts.allow(now):
            allowed.append(now)
    for first in allowed:
        assert sum(first <= one <= first + window for one in allowed) <= limit


@given(st.integers(1, 5), st.integers(1, 100))
def test_a_part_that_dies_rarely_is_always_started_again(limit: int, window: int) -> None:
    restarts = Restarts(limit, window)
    assert all(restarts.allow(number * (window + 1)) for number in range(50))
