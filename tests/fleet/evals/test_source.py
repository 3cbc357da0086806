from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.evals import source
from fleet.evals.shallow_git import GitUnreadable, pack_shallow_git
from fleet.evals.source import SourceUnreadable, pack


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package, an executable, an ignored file and an untracked one."""
    root = tmp_path / "checkout"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "tasks.py").write_text("one = 1\n")
    (root / "pyproject.toml").write_text("[project]\nname = 'pkg'\nversion = '1'\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / ".gitignore").write_text("secret.env\n")
    (root / "secret.env").write_text("KEY=1\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    commit(root)
    (root / "notes.txt").write_text("mine\n")
    return root


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), "-c", "protocol.file.allow=always", *arguments], check=True)


def commit(root: Path) -> None:
    git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "work")


def contents(archive: Path) -> dict[str, str]:
    """Name → content; a link shows where it points."""
    with tarfile.open(archive) as tar:
        return {
            entry.name: f"-> {entry.linkname}"
            if entry.issym()
            else (tar.extractfile(entry) or pytest.fail(entry.name)).read().decode()
            for entry in tar
        }


def test_what_git_tracks_travels_and_the_rest_is_named(checkout: Path, tmp_path: Path) -> None:
    archive = pack(checkout, tmp_path / "out")
    assert sorted(contents(archive.path)) == [".gitignore", "pkg/tasks.py", "pyproject.toml", "run.sh"]
    assert archive.untracked == ["notes.txt"]
    assert archive.installable
    assert archive.path.name == f"{archive.sha256}.tar.gz"
    assert [path.name for path in (tmp_path / "out").iterdir()] == [archive.path.name]


def test_uncommitted_changes_travel_and_deleted_files_dont(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pkg" / "tasks.py").write_text("one = 2\n")
    (checkout / "run.sh").unlink()
    (checkout / "staged.py").write_text("new = 1\n")
    git(checkout, "add", "staged.py")
    found = contents(pack(checkout, tmp_path).path)
    assert found["pkg/tasks.py"] == "one = 2\n"
    assert found["staged.py"] == "new = 1\n"
    assert "run.sh" not in found


def test_equal_trees_make_equal_bytes(checkout: Path, tmp_path: Path) -> None:
    """Neither times, nor owners, nor git's own state are in the archive; whether a file is executable is."""
    before = pack(checkout, tmp_path / "a")
    for file in checkout.rglob("*.py"):
        os.utime(file, (1, 1))
    commit_nothing = ("-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "x")
    git(checkout, *commit_nothing)
    after = pack(checkout, tmp_path / "b")
    assert before.path.read_bytes() == after.path.read_bytes()
    (checkout / "run.sh").chmod(0o644)
    assert pack(checkout, tmp_path / "c").sha256 != before.sha256


def test_a_folder_of_a_checkout_is_packed_by_itself(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pkg" / "untracked.py").write_text("")
    archive = pack(checkout / "pkg", tmp_path)
    assert sorted(contents(archive.path)) == ["tasks.py"]
    assert archive.untracked == ["untracked.py"]
    assert not archive.installable


def test_links_inside_travel_as_links_and_those_that_lead_out_are_named(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pkg" / "same.py").symlink_to("tasks.py")
    (checkout / "pkg" / "data").symlink_to("/var/data")
    (checkout / "pkg" / "up").symlink_to("../../elsewhere")
    git(checkout, "add", "-A", "pkg")
    archive = pack(checkout, tmp_path)
    assert contents(archive.path)["pkg/same.py"] == "-> tasks.py"
    assert archive.untracked == ["notes.txt", "pkg/data", "pkg/up"]


def test_a_submodules_files_travel_where_it_is_checked_out(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "inner.py").write_text("inner = 1\n")
    git(other, "init", "-q")
    git(other, "add", "-A")
    commit(other)
    git(checkout, "submodule", "--quiet", "add", str(other), "vendored")
    assert contents(pack(checkout, tmp_path / "a").path)["vendored/inner.py"] == "inner = 1\n"
    git(checkout, "submodule", "--quiet", "deinit", "-f", "vendored")
    assert "vendored/inner.py" not in contents(pack(checkout, tmp_path / "b").path)


def test_odd_names_and_conflicts_are_packed_once(checkout: Path, tmp_path: Path) -> None:
    odd = checkout / "pkg" / "naïve tab\t.txt"
    odd.write_text("odd\n")
    git(checkout, "add", "-A", "pkg")
    assert contents(pack(checkout, tmp_path).path)["pkg/naïve tab\t.txt"] == "odd\n"


def test_settings_of_tools_alone_make_no_package(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pyproject.toml").write_text("[tool.ruff]\nline-length = 120\n")
    assert not pack(checkout, tmp_path).installable
    (checkout / "pyproject.toml").write_text("[project\n")
    with pytest.raises(SourceUnreadable, match=r"pyproject\.toml is malformed"):
        pack(checkout, tmp_path)


def test_what_cant_be_packed_is_said_in_one_line(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git(tmp_path, "init", "-q", "fresh")
    cases = {
        tmp_path / "nowhere": "there is no such folder",
        checkout / "run.sh": "it is a file",
        empty: "not a git repository",
        tmp_path / "fresh": "git tracks no file",
    }
    for path, why in cases.items():
        with pytest.raises(SourceUnreadable, match=why) as refused:
            pack(path, tmp_path / "out")
        assert refused.value.exit_code == 2
        assert "\n" not in str(refused.value)
    monkeypatch.setenv("PATH", str(empty))
    with pytest.raises(SourceUnreadable, match="git isn't installed"):
        pack(checkout, tmp_path / "out")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("ask", "refused"), [(pack, SourceUnreadable), (pack_shallow_git, GitUnreadable)])
@pytest.mark.fault("hang")
def test_a_git_that_hangs_is_ended_and_says_so(
    ask: Callable[[Path, Path], object],
    refused: type[Exception],
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it may on a disk of the network, or where a partial clone asks its server for what it lacks."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setattr(source, "GIT_S", 0.2)
    with pytest.raises(refused, match=rf"{checkout} can't be packed: git didn't answer within 0\.2 s"):
        ask(checkout, tmp_path / "out")
