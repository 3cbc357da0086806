from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.environment import JobEnvironment
from bootstrap.install import ArtifactCorrupt, fetch_artifact, resolved_locations
from fleet.evals.documents import EnvironmentSpec, SettingSpec
from fleet.evals.layout import Layout

CONTENT = b"an archive"
SHA = hashlib.sha256(CONTENT).hexdigest()


class Bucket:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def download(self, key: str, to: Path) -> None:
        assert key == f"fleet/artifacts/{SHA}"
        to.write_bytes(self.content)

    def uri(self, key: str) -> str:
        return f"s3://bucket/{key}"


def test_an_artifact_is_what_its_name_says(tmp_path: Path) -> None:
    assert fetch_artifact(Bucket(CONTENT), Layout("fleet"), SHA, tmp_path).read_bytes() == CONTENT


def test_a_damaged_artifact_is_refused_and_not_left_behind(tmp_path: Path) -> None:
    with pytest.raises(ArtifactCorrupt, match=f"s3://bucket/fleet/artifacts/{SHA} has the SHA-256"):
        fetch_artifact(Bucket(b"something else"), Layout("fleet"), SHA, tmp_path)
    assert list(tmp_path.iterdir()) == []


SETTING = SettingSpec(name="tools", files="1" * 64, git="2" * 64, commit="3" * 40)


def environment(source: Path | None = None) -> JobEnvironment:
    spec = EnvironmentSpec(python="3.11", lock="", settings=[SETTING])
    return JobEnvironment(spec=spec, python=Path(sys.executable), source=source)


def test_the_places_that_code_is_taken_from_are_told(tmp_path: Path) -> None:
    lines = list(resolved_locations(environment(tmp_path)))
    assert "fleet from /" in lines[0]
    assert "inspect-ai 0." in lines[1]
    assert lines[1].rstrip().endswith("inspect_ai")
    assert lines[2:] == [f"source at {tmp_path}", f"setting tools at {tmp_path}/.settings/tools, commit {'3' * 40}"]


def test_an_environment_that_cannot_be_looked_at_stops_nothing() -> None:
    def broken(_: Path) -> str:
        raise subprocess.CalledProcessError(1, "python")

    assert "could not be looked at" in list(resolved_locations(environment(), run=broken))[1]
