"""Which processes belong to an instance, as a pure matter of a process table; ending them is tested on the host itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleet.local.processes import MARK, Finder, end, family, read_records, write_record
from fleet.processes import Process, process


def table(*rows: tuple[int, int, int, int]) -> dict[int, Process]:
    """Rows of pid, parent, group, session."""
    return {row[0]: Process(row[0], str(row[0]), *row[1:]) for row in rows}


ROOT = Process(10, "10")
SHELL = (2, 1, 2, 2)
FIRST = (10, 2, 10, 10)


def pids(found: set[Process]) -> set[int]:
    return {one.pid for one in found}


def test_children_belong_whatever_their_session() -> None:
    """A child that leads a session of its own, and its children."""
    running = table(SHELL, FIRST, (11, 10, 11, 11), (12, 11, 11, 11))
    assert pids(family([ROOT], [], running)) == {10, 11, 12}


def test_a_session_outlives_its_leader() -> None:
    """The first process has ended; what is left in its session, with init as parent, belongs still."""
    assert pids(family([ROOT], [], table(SHELL, (13, 1, 13, 10)))) == {13}


def test_an_id_that_is_used_again_is_not_ours() -> None:
    """Another process has the first one's id by now: neither it nor its children are touched."""
    running = {10: Process(10, "later", 2, 10, 10), 11: Process(11, "later", 10, 10, 10)}
    assert family([ROOT], [], running) == set()


def test_the_marked_belong_without_any_tie() -> None:
    """A daemon with its own session and no parent is known by its environment, and so are its children."""
    assert pids(family([], [20], table(SHELL, (20, 1, 20, 20), (21, 20, 20, 20)))) == {20, 21}


def test_what_started_it_does_not_belong() -> None:
    """The parent of the first process, and that one's other children."""
    assert pids(family([ROOT], [], table(SHELL, FIRST, (3, 2, 3, 2)))) == {10}


@given(st.lists(st.tuples(st.integers(2, 30), st.integers(1, 30), st.integers(2, 30), st.integers(2, 30)), max_size=20))
def test_a_family_is_closed(rows: list[tuple[int, int, int, int]]) -> None:
    """Nobody outside has a parent inside: whatever the table, no child is left behind."""
    running = table(*rows)
    inside = pids(family([ROOT], [5], running))
    assert not [one.pid for one in running.values() if one.parent in inside and one.pid not in inside]


def test_a_record_names_a_process_until_it_is_gone(tmp_path: Path) -> None:
    """Written by one process, read by another after a crash; half a record is none."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = process(child.pid)
    assert found is not None
    instance = tmp_path / "instances" / "i-1"
    broken = tmp_path / "instances" / "i-2"
    for folder in (instance, broken):
        folder.mkdir(parents=True)
    write_record(instance, found)
    (broken / "process.json").write_text('{"pid": 1')
    assert read_records(tmp_path) == [found]
    child.communicate(b"\n")
    assert process(child.pid) is None


def test_without_a_grace_there_is_no_term() -> None:
    """KILL at once: the process can't tell that it ends."""
    script = "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n"
    child = subprocess.Popen(
        [sys.executable, "-c", script + "print('up', flush=True)\ntime.sleep(1000)"],
        stdout=subprocess.PIPE,
        text=True,
        env={MARK: "test:without-grace"},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    assert end(Finder("test:without-grace"), grace=0) == set()
    assert child.communicate()[0] == ""
    assert child.returncode == -9
