"""The archive is the same bytes for the same files, and holds all that an instance imports."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleet.pool.code import ROOMS, CodeIncomplete, code_archive


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    for room in ROOMS:
        (tmp_path / room / "__pycache__").mkdir(parents=True)
        (tmp_path / room / "__init__.py").write_text(f"# {room}\n")
        (tmp_path / room / "__pycache__" / "x.pyc").write_bytes(b"x")
    (tmp_path / "fleet" / "pool").mkdir()
    (tmp_path / "fleet" / "pool" / "user_data.sh").write_text("#!/bin/bash\n")
    (tmp_path / "fleet" / ".secrets").mkdir()
    (tmp_path / "fleet" / ".secrets" / "key").write_text("hunter2")
    (tmp_path / "fleet" / "stray.pyc").write_bytes(b"x")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").write_text("")
    return tmp_path


def test_rooms_and_their_data_files_are_in_it_and_nothing_else(rooms: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(code_archive(rooms))) as archive:
        assert archive.namelist() == sorted([*(f"{room}/__init__.py" for room in ROOMS), "fleet/pool/user_data.sh"])


def test_the_deployments_lie_in_the_flows_room_wherever_they_come_from(rooms: Path) -> None:
    """A control plane deploys from what it was shipped; a checkout has the file beside the rooms, a package inside."""
    (rooms / "prefect.yaml").write_text("name: checkout\n")
    with zipfile.ZipFile(io.BytesIO(code_archive(rooms))) as archive:
        assert archive.read("flows/prefect.yaml") == b"name: checkout\n"
    (rooms / "flows" / "prefect.yaml").write_text("name: package\n")
    with zipfile.ZipFile(io.BytesIO(code_archive(rooms))) as archive:
        assert archive.namelist().count("flows/prefect.yaml") == 1
        assert archive.read("flows/prefect.yaml") == b"name: package\n"


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(rooms: Path) -> None:
    first = code_archive(rooms)
    for path in rooms.rglob("*"):
        os.utime(path, (1, 1))
    (rooms / "fleet" / "__init__.py").chmod(0o600)
    assert code_archive(rooms) == first
    (rooms / "fleet" / "__init__.py").write_text("# changed\n")
    assert code_archive(rooms) != first


def test_a_missing_room_is_named(rooms: Path) -> None:
    (rooms / "blocks" / "__init__.py").unlink()
    with pytest.raises(CodeIncomplete, match="the package blocks"):
        code_archive(rooms)


def test_what_is_unpacked_is_what_python_imports(tmp_path: Path) -> None:
    """Although another copy is installed in this very environment."""
    with zipfile.ZipFile(io.BytesIO(code_archive())) as archive:
        archive.extractall(tmp_path)
    ask = "import bootstrap.boot, fleet.pool.user_data as found; print(found.__file__); found.user_data({}, 'x', max_hours=1)"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "fleet" / "pool" / "user_data.py")
