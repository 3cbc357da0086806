from __future__ import annotations

from pathlib import Path

import pytest

from fleet.local import state
from fleet.local.process_ref import ProcessRef
from fleet.local.state import CloudNameRefused, CloudState, Part


@pytest.mark.parametrize("name", ["default", "run-4711", "a"])
def test_a_plain_word_names_a_cloud(name: str) -> None:
    assert state.cloud_folder(name).parent == state.clouds_folder()


@pytest.mark.parametrize("name", ["", "..", "a/b", "Default", "1st", "-x", "a" * 41, "a b"])
def test_what_could_leave_the_folder_names_no_cloud(name: str) -> None:
    with pytest.raises(CloudNameRefused, match="lower-case letters"):
        state.cloud_folder(name)


def test_a_written_state_reads_back(tmp_path: Path) -> None:
    one = ProcessRef(pid=1, started="2")
    written = CloudState(name="a", supervisor=one, parts={"host": Part(process=one, log="x"), "server": Part(log="y")})
    state.write(tmp_path, written)
    assert state.read(tmp_path) == written
    assert state.processes_of(written) == {"host": one}


def test_no_state_is_none(tmp_path: Path) -> None:
    assert state.read(tmp_path) is None
    assert state.processes_of(None) == {}


def test_a_tail_is_the_last_lines_that_say_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n\n" for number in range(5000)))
    assert state.tail(log, lines=2) == ["line 4998", "line 4999"]
    assert state.tail(tmp_path / "absent") == []
