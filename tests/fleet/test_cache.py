from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cache import cache_folder

HOME = Path("/home/person")


def test_the_cache_lies_where_the_nearest_word_says() -> None:
    assert cache_folder({}, HOME) == Path("/home/person/.cache/inspect-fleet")
    assert cache_folder({"XDG_CACHE_HOME": "/var/cache/person"}, HOME) == Path("/var/cache/person/inspect-fleet")
    assert cache_folder({"XDG_CACHE_HOME": "/x", "FLEET_CACHE_DIR": "/fast/disk"}, HOME) == Path("/fast/disk")
    assert cache_folder({"XDG_CACHE_HOME": "", "FLEET_CACHE_DIR": ""}, HOME) == HOME / ".cache" / "inspect-fleet"


def test_the_cache_is_where_it_was_named_whoever_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path goes into what is kept there, and to processes with other working folders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FLEET_CACHE_DIR", "near")
    assert cache_folder() == tmp_path.resolve() / "near"
    monkeypatch.setenv("FLEET_CACHE_DIR", "~/far")
    assert cache_folder() == tmp_path.resolve() / "far"
