from __future__ import annotations

import inspect
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from bootstrap.private_files import folder_below, open_new, open_to_append, open_to_read, remove_folder, write_private


@pytest.fixture(autouse=True)
def open_handed() -> Iterator[None]:
    """A process whose files everybody may read."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("opened", [open_new, open_to_append])
def test_a_file_is_its_owners_alone_from_its_first_moment(opened: Callable[[Path], BinaryIO], tmp_path: Path) -> None:
    with opened(tmp_path / "a") as file:
        assert mode(tmp_path / "a") == 0o600
        file.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_new_file_takes_the_place_of_what_is_there_and_of_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old, and longer")
    write_private(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert mode(tmp_path / "a") == 0o600


def test_what_is_appended_follows_what_is_there(tmp_path: Path) -> None:
    for text in (b"one ", b"two"):
        with open_to_append(tmp_path / "a") as file:
            file.write(text)
    assert (tmp_path / "a").read_bytes() == b"one two"


@pytest.mark.fault("planted-link")
def test_a_link_in_a_files_place_leads_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "a").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        open_to_append(tmp_path / "a")
    write_private(tmp_path / "a", "new")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.fault("planted-link")
def test_a_link_in_a_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for way in (("link",), ("link", "inner")):
        with pytest.raises(OSError, match=r"directory|symbolic"), folder_below(tmp_path, *way, make=True):
            pass
    with folder_below(tmp_path, "real", "new", make=True) as folder, open_new("a", folder=folder) as file:
        file.write(b"x")
    assert (tmp_path / "real" / "new" / "a").read_bytes() == b"x"


@pytest.mark.fault("planted-link")
def test_only_a_plain_file_of_its_own_is_read_where_others_put_things(tmp_path: Path) -> None:
    """A pipe would block, and a link or a second name may be anybody's."""
    (tmp_path / "plain").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    (tmp_path / "twice").write_bytes(b"y")
    (tmp_path / "again").hardlink_to(tmp_path / "twice")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with folder_below(tmp_path.parent, tmp_path.name) as folder, open_to_read("plain", folder=folder) as file:
        assert file.read() == b"x"
    for name in ("link", "twice", "again", "folder", "pipe", "none"):
        with pytest.raises(OSError):  # noqa: PT011 - of many kinds
            open_to_read(tmp_path / name)
    assert opened_below(tmp_path) == []


def opened_below(folder: Path) -> list[str]:
    """What this process has open there."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing is gone by now
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def test_a_folder_that_is_too_deep_to_remove_ends_nobody(tmp_path: Path) -> None:
    """And no other one stays for it."""
    deep = tmp_path / "deep"
    (deep / "/".join("d" * 150)).mkdir(parents=True)
    flat = tmp_path / "flat"
    flat.mkdir()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 80)
    try:
        remove_folder(deep)
        remove_folder(flat)
    finally:
        sys.setrecursionlimit(limit)
    assert not flat.exists()
