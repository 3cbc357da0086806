"""Members go from archive to archive as they lie."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspect_ai._util.zipfile import zipfile_compress_kwargs

from fleet.evals.eval_file import ZSTD, EvalFile, EvalFileUnreadable, EvalFileWriter, _inflate

METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTD]

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30).map(
    "samples/{}.json".format
)
members = st.dictionaries(names, st.tuples(st.binary(max_size=2000), st.sampled_from(METHODS)), min_size=1, max_size=8)


@given(members=members)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_copied_members_are_those_of_the_source(
    members: dict[str, tuple[bytes, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any name, content and method that Inspect writes; the directory is in the order asked for."""
    folder = tmp_path_factory.mktemp("copy")
    with zipfile.ZipFile(folder / "a.eval", "w") as made:
        for name, (content, method) in members.items():
            made.writestr(name, content, compress_type=method)
    writer = EvalFileWriter(folder / "b.eval")
    with EvalFile(folder / "a.eval") as source:
        for name, (content, _) in members.items():
            assert source.read(name) == content
            writer.copy(source, name)
    with writer.open("own.json") as own:
        own.write(b"[]")
    writer.finish(order=lambda name: name)

    with zipfile.ZipFile(folder / "b.eval") as copied:
        assert copied.namelist() == sorted([*members, "own.json"])
        assert copied.testzip() is None
        for name, (content, method) in members.items():
            assert copied.read(name) == content
            assert copied.getinfo(name).compress_type == method


def test_a_member_in_several_frames_is_read_whole() -> None:
    """Inspect begins a new zstd frame now and then in a large member."""
    import zstandard

    compress = zstandard.ZstdCompressor().compress
    assert _inflate(ZSTD, compress(b"one") + compress(b"two")) == b"onetwo"


def test_the_last_of_two_members_of_a_name_counts(tmp_path: Path) -> None:
    """As for Inspect: a sample that ran again supersedes its record."""
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as made:
        made.writestr("x", b"old")
        with pytest.warns(UserWarning, match="Duplicate"):
            made.writestr("x", b"new")
    with EvalFile(tmp_path / "a.eval") as log:
        assert log.read("x") == b"new"


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.fault("result-damaged")
def test_a_damaged_byte_is_noticed_or_does_no_harm(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Reading gives the content that was written, or EvalFileUnreadable; nothing else."""
    folder = tmp_path_factory.mktemp("damage")
    with zipfile.ZipFile(folder / "a.eval", "w", **zipfile_compress_kwargs) as made:
        made.writestr("header.json", b'{"version":2}' * 40)
    content = bytearray((folder / "a.eval").read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / "a.eval").write_bytes(content)
    with suppress(EvalFileUnreadable), EvalFile(folder / "a.eval") as log:
        if "header.json" in log:
            assert log.read("header.json") == b'{"version":2}' * 40
