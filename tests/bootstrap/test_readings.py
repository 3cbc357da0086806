from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest

from bootstrap import readings
from bootstrap.guard import Reading
from bootstrap.readings import HostReader, filesystems, memory, oom_kills

MEMINFO = """MemTotal:       32768000 kB
MemFree:         1000000 kB
MemAvailable:    8192000 kB
HugePages_Total:       0
"""


def test_each_filesystem_is_read_once_and_a_folder_that_is_not_there_never(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (one,) = filesystems([tmp_path / "none", inside, tmp_path])
    assert one.folder == str(inside)
    assert 0 < one.free <= one.size
    assert one.free_inodes <= one.inodes


def test_memory_is_what_the_kernel_says_is_available(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    assert memory(path) == (8192000 * 1024, 32768000 * 1024)
    path.write_text("MemTotal: 5 kB\n")
    assert memory(path) is None
    assert memory(tmp_path / "none") is None


def test_processes_killed_for_memory_are_counted_where_the_kernel_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "vmstat"
    path.write_text("nr_free_pages 7\noom_kill_disable 9\noom_kill 3\ndrop_pagecache 0\n")
    assert oom_kills(path) == 3
    path.write_text("nr_free_pages 7\n")
    assert oom_kills(path) == 0
    assert oom_kills(tmp_path / "none") == 0
    assert oom_kills() >= 0


def test_a_look_takes_in_all_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        found = await HostReader([tmp_path], lambda: "it is down", memory=tmp_path / "none")()
        assert [one.folder for one in found.filesystems] == [str(tmp_path)]
        assert (found.engine, found.memory, found.silent) == ("it is down", None, "")
        assert (await HostReader([tmp_path], None)()).engine == ""

    anyio.run(main)


def test_who_asks_while_a_look_is_on_is_answered_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow host, a burst of failing jobs; also where the one that had the look made is stopped."""
    looks: list[anyio.Event] = []

    async def main() -> None:
        async def look(*_: object) -> Reading:
            looks.append(anyio.Event())
            number = len(looks)
            await looks[-1].wait()
            return Reading(engine=f"look {number}")

        monkeypatch.setattr(readings, "abandonable", look)
        reader, found = HostReader([], None), list[str]()

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                found.append((await reader()).engine)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as jobs:
                scopes = [anyio.CancelScope() for _ in range(30)]
                for scope in scopes:
                    jobs.start_soon(ask, scope)
                await anyio.wait_all_tasks_blocked()
                assert len(looks) == 1
                scopes[0].cancel()
                await anyio.wait_all_tasks_blocked()
                assert len(looks) == 2
                looks[1].set()
        assert found == ["look 2"] * 29
        looks[0].set()

    anyio.run(main)


def test_a_look_that_hangs_is_an_answer_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also once all of its threads hang."""
    monkeypatch.setattr(readings, "READ_SECONDS", 0.01)
    over = threading.Event()

    def hangs() -> str:
        over.wait(60)
        return ""

    async def main() -> None:
        reader = HostReader([], hangs)
        for _ in range(12):
            assert (await reader()).silent == "the host couldn't be looked at within 0.01 s"

    try:
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(main)
            over.set()
    finally:
        over.set()
