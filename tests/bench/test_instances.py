"""What is seen of an instance from outside."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleet.local import state
from fleet.local.ending import host_folder
from fleet.local.processes import write_record
from fleet.local.scratch import CONSOLE, make_temporary
from fleet.processes import process
from tests.bench.instances import Sight, seen
from tests.cloud import until


def test_an_instance_is_seen_from_its_first_process_to_its_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines count once they are whole, and each once."""
    monkeypatch.setenv("FLEET_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = host_folder(state.cloud_folder("c")) / "instances" / "i-1"
    folder.mkdir(parents=True)
    (folder / CONSOLE).write_text("[+0.0s] instance i-1 boots\ntaking")
    own = make_temporary(folder)
    with seen("c") as sights:
        me = process(os.getpid())
        assert me is not None
        write_record(folder, me)
        sight = until("it is seen", lambda: sights.get("i-1"))
        until("it said a line", lambda: sight.said)
        assert sight.taken is None
        with pytest.raises(ValueError, match="took no job"):
            _ = sight.ready
        (own / "fleet-worker-1" / "jobs").mkdir(parents=True)
        with (folder / CONSOLE).open("a") as console:
            console.write(" jobs: 2\n")
        until("it took a job", lambda: sight.taken)
        until("it said two lines", lambda: len(sight.said) == 2)
    assert [line for _, line in sight.said] == ["[+0.0s] instance i-1 boots", "taking jobs: 2"]
    assert 0 < sight.ready < time.time() - sight.started + 1
    assert sight.heard("boots") <= sight.heard("taking jobs")


def test_what_an_instance_never_said_is_an_error() -> None:
    with pytest.raises(LookupError, match="boots"):
        Sight(started=0.0).heard("boots")
