"""Where logs go, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.evals.delivery import LogDirRefused, check_log_dir, deliver


def test_a_log_is_delivered_whole_into_a_folder_that_is_made(tmp_path: Path) -> None:
    log = tmp_path / "one.eval"
    log.write_bytes(b"content")
    where = deliver(log, str(tmp_path / "new" / "folder"))
    assert Path(where).read_bytes() == b"content"
    assert [path.name for path in Path(where).parent.iterdir()] == ["one.eval"]


@pytest.mark.parametrize(
    ("log_dir", "why"),
    [("gs://bucket/x", "gs:// is not supported"), ("s3:///x", "names no bucket"), ("FILE", "it is a file")],
)
def test_a_place_that_can_not_be_used_is_refused(log_dir: str, why: str, tmp_path: Path) -> None:
    if log_dir == "FILE":
        (tmp_path / "file").write_text("")
        log_dir = str(tmp_path / "file")
    with pytest.raises(LogDirRefused, match=why):
        check_log_dir(log_dir)


@pytest.mark.parametrize("log_dir", [None, "", "logs", "s3://bucket", "s3://bucket/folder/"])
def test_usual_places_are_fine(log_dir: str | None) -> None:
    check_log_dir(log_dir)
