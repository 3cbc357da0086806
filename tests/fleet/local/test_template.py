from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fleet.local import template
from fleet.local.template import KEPT, Kind, Templates


@pytest.fixture
def kept(tmp_path: Path) -> Templates:
    (tmp_path / "code" / "flows").mkdir(parents=True)
    (tmp_path / "code" / "flows" / "one.py").write_text("a flow")
    (tmp_path / "code" / "elsewhere").mkdir()
    (tmp_path / "code" / "elsewhere" / "prefect.yaml").write_text("deployments")
    return a_kit(tmp_path, "prefect 1")


def a_kit(folder: Path, *releases: str) -> Templates:
    code = folder / "code"
    return Templates(
        folder=folder / "templates", code=code, deployments=code / "elsewhere" / "prefect.yaml", releases=releases
    )


def database(path: Path, row: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table said (what)")
        connection.execute("insert into said values (?)", (row,))
        connection.commit()
    return path


def said(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("select what from said").fetchone()[0])


def test_there_is_none_at_first(kept: Templates, tmp_path: Path) -> None:
    assert kept.copy_to(tmp_path / "new.db") is None


def test_the_most_complete_one_is_copied(kept: Templates, tmp_path: Path) -> None:
    kept.keep("tables", database(tmp_path / "a.db", "tables"))
    assert kept.copy_to(tmp_path / "new.db") == "tables"
    kept.keep("cloud", database(tmp_path / "b.db", "cloud"))
    assert kept.copy_to(tmp_path / "new.db") == "cloud"
    assert said(tmp_path / "new.db") == "cloud"


def test_what_a_running_server_wrote_is_in_it(kept: Templates, tmp_path: Path) -> None:
    """A server has its database open in WAL mode: the file alone isn't all of it."""
    with closing(sqlite3.connect(tmp_path / "open.db")) as server:
        server.execute("pragma journal_mode = wal")
        server.execute("create table said (what)")
        server.execute("insert into said values ('just now')")
        server.commit()
        kept.keep("cloud", tmp_path / "open.db")
    kept.copy_to(tmp_path / "new.db")
    assert said(tmp_path / "new.db") == "just now"


def test_a_changed_flow_needs_new_deployments_but_not_new_tables(kept: Templates) -> None:
    kinds: tuple[Kind, ...] = ("tables", "cloud")
    tables, cloud = map(kept.path, kinds)
    (kept.code / "flows" / "one.py").write_text("another flow")
    assert kept.path("tables") == tables
    assert kept.path("cloud") != cloud


def test_changed_deployments_need_a_new_database_wherever_their_file_lies(kept: Templates) -> None:
    """In an installed package it lies inside a room."""
    before = kept.path("cloud")
    kept.deployments.write_text("other deployments")
    assert kept.path("cloud") != before


def test_a_file_that_shapes_no_deployment_changes_nothing(kept: Templates) -> None:
    before = kept.path("cloud")
    (kept.code / "README.md").write_text("new")
    assert kept.path("cloud") == before


def test_another_prefect_needs_new_tables(kept: Templates, tmp_path: Path) -> None:
    other = a_kit(tmp_path, "prefect 2")
    assert other.path("tables") != kept.path("tables")
    kept.keep("tables", database(tmp_path / "a.db", "tables"))
    assert other.copy_to(tmp_path / "new.db") is None


def test_only_the_latest_few_stay(kept: Templates, tmp_path: Path) -> None:
    source = database(tmp_path / "a.db", "cloud")
    for number in range(KEPT + 2):
        (kept.code / "flows" / "one.py").write_text(f"flow {number}")
        kept.keep("cloud", source)
        os.utime(kept.path("cloud"), (number, number))
    assert len(list(kept.folder.glob("*"))) == KEPT
    assert kept.path("cloud").exists()


def test_every_file_that_is_said_to_shape_a_database_exists() -> None:
    """A renamed file would silently leave stale deployments behind."""
    for pattern in template.SHAPING:
        assert list(template.code_folder().glob(pattern)), pattern
