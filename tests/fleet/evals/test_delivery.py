"""Where logs go, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.aws.session import Aws
from fleet.evals.delivery import LogDirRefused, check_log_dir, deliver, fetch


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


@pytest.mark.parametrize("log_dir", ["s3://{bucket}", "s3://{bucket}/", "s3://{bucket}/a folder/#1?"])
def test_a_log_is_delivered_into_a_bucket_and_fetched_from_there(
    log_dir: str, tmp_path: Path, aws: Aws, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.s3.create_bucket(Bucket=unique)
    monkeypatch.setattr("fleet.evals.delivery.Aws", lambda region: aws)
    (tmp_path / "one.eval").write_bytes(b"content")
    where = deliver(tmp_path / "one.eval", log_dir.format(bucket=unique))
    assert where == f"{log_dir.format(bucket=unique).removesuffix('/')}/one.eval"
    (tmp_path / "back").mkdir()
    assert fetch(where, tmp_path / "back").read_bytes() == b"content"


@pytest.mark.parametrize("log_dir", [None, "", "logs", "s3://bucket", "s3://bucket/folder/"])
def test_usual_places_are_fine(log_dir: str | None) -> None:
    check_log_dir(log_dir)
