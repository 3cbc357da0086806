from __future__ import annotations

import os
import re
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals import source
from fleet.evals.settings import (
    SettingArchive,
    SettingRefused,
    pack_setting,
    pack_settings,
    setting_name,
    settings_by_name,
    values_file,
    warnings_about,
)
from tests.checkouts import commit, git, made

SECRET = "ghp_not_for_the_road"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A setting with a package, a plugin and a history, and everything in its `.git` that must not travel."""
    root = made(
        tmp_path / "tools",
        {
            "pyproject.toml": "[project]\nname = 'tools'\nversion = '1'\n",
            "uv.lock": "version = 1\n",
            "run.sh": "#!/bin/sh\n",
            "ct_plugin/pyproject.toml": "[project]\nname = 'tools-plugin'\nversion = '1'\n",
            "old.txt": SECRET,
        },
    )
    git(root, "rm", "-q", "old.txt")
    (root / "run.sh").chmod(0o755)
    git(root, "add", "run.sh")
    commit(root, "second")
    git(root, "remote", "add", "origin", f"https://me:{SECRET}@localhost/tools.git")
    git(root, "config", "http.extraHeader", f"Authorization: {SECRET}")
    (root / ".git" / "hooks").mkdir(exist_ok=True)
    (root / ".git" / "hooks" / "pre-commit").write_text(f"echo {SECRET}\n")
    git(root, "branch", f"other-{SECRET}")
    return root


def unpacked(archive: SettingArchive, at: Path) -> Path:
    """The setting as it lies where it arrives."""
    for what, where in ((archive.files, at), (archive.git, at / ".git")):
        where.mkdir(parents=True)
        with tarfile.open(what.path) as tar:
            tar.extractall(where)  # noqa: S202 - made here
    return at


def said(root: Path, *arguments: str) -> str:
    return subprocess.check_output(["git", "-C", str(root), *arguments], text=True).strip()


def test_a_setting_arrives_as_a_clean_checkout_of_one_commit(checkout: Path, tmp_path: Path) -> None:
    archive = pack_setting(checkout, tmp_path / "out")
    arrived = unpacked(archive, tmp_path / "there")
    assert said(arrived, "status", "--porcelain") == ""
    assert said(arrived, "log", "--format=%s") == "second"
    assert said(arrived, "rev-parse", "HEAD") == said(checkout, "rev-parse", "HEAD") == archive.git.commit
    assert said(arrived, "rev-parse", "--is-shallow-repository") == "true"
    subprocess.run(["git", "-C", str(arrived), "fsck", "--strict"], check=True)
    assert (archive.name, archive.package, archive.plugin, archive.locked) == ("tools", True, True, True)
    assert warnings_about(archive) == []


def test_nothing_of_the_checkouts_own_git_travels(checkout: Path, tmp_path: Path) -> None:
    """Remotes, headers, hooks, reflogs, other branches and earlier commits: each may hold a credential."""
    arrived = unpacked(pack_setting(checkout, tmp_path / "out"), tmp_path / "there")
    everything = b"".join(file.read_bytes() for file in arrived.rglob("*") if file.is_file())
    assert SECRET.encode() not in everything
    assert said(arrived, "config", "--local", "--name-only", "--list").split() == [
        "core.repositoryformatversion",
        "core.filemode",
        "core.bare",
    ]
    assert said(arrived, "for-each-ref") == ""
    objects = said(arrived, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    wanted = said(checkout, "rev-list", "--objects", "--no-walk", "HEAD").splitlines()
    assert len(objects) == len(wanted)


def test_the_same_commit_and_files_make_the_same_bytes(checkout: Path, tmp_path: Path) -> None:
    """Whatever else was done in the checkout meanwhile: or the same request would be another eval, and not resume."""
    before = pack_setting(checkout, tmp_path / "a")
    for file in checkout.rglob("*.toml"):
        os.utime(file, (1, 1))
    git(checkout, "tag", "v1")
    git(checkout, "branch", "-m", "renamed")
    git(checkout, "config", "pack.compression", "0")
    git(checkout, "config", "core.looseCompression", "0")
    git(checkout, "config", "index.version", "4")
    git(checkout, "gc", "--quiet", "--aggressive")
    (checkout / "untracked.txt").write_text("mine\n")
    after = pack_setting(checkout, tmp_path / "b")
    assert after.spec == before.spec
    assert after.files.untracked == ["untracked.txt"]


def test_what_isnt_committed_travels_and_shows(checkout: Path, tmp_path: Path) -> None:
    before = pack_setting(checkout, tmp_path / "a")
    (checkout / "run.sh").write_text("#!/bin/sh\nexit 1\n")
    (checkout / "new.txt").write_text("new\n")
    git(checkout, "add", "new.txt")
    (checkout / "uv.lock").unlink()
    archive = pack_setting(checkout, tmp_path / "b")
    assert archive.spec.files != before.spec.files
    assert archive.git.sha256 == before.git.sha256
    arrived = unpacked(archive, tmp_path / "there")
    assert said(arrived, "status", "--porcelain").splitlines() == ["M run.sh", " D uv.lock", "?? new.txt"]
    assert [line.split(":")[0] for line in warnings_about(archive)] == ["setting tools has no uv.lock"]


def test_a_commit_alone_makes_another_setting(checkout: Path, tmp_path: Path) -> None:
    """A task may ask git what it runs from."""
    before = pack_setting(checkout, tmp_path / "a").spec
    git(checkout, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "third")
    after = pack_setting(checkout, tmp_path / "b").spec
    assert after.files == before.files
    assert after.commit != before.commit


def test_submodules_worktrees_and_shallow_clones_are_checkouts_too(checkout: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", {"inner.py": "inner = 1\n"})
    git(checkout, "submodule", "--quiet", "add", str(other), "vendored")
    commit(checkout, "with a submodule")
    arrived = unpacked(pack_setting(checkout, tmp_path / "out"), tmp_path / "there")
    assert (arrived / "vendored" / "inner.py").read_text() == "inner = 1\n"
    assert said(arrived, "status", "--porcelain") == ""

    whole = pack_setting(checkout, tmp_path / "out")
    git(checkout, "worktree", "add", "-q", "--detach", str(tmp_path / "beside"))
    assert pack_setting(tmp_path / "beside", tmp_path / "out").git == whole.git
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{checkout}", str(tmp_path / "clone")], check=True)
    assert pack_setting(tmp_path / "clone", tmp_path / "out").git == whole.git
    assert pack_setting(checkout / "vendored", tmp_path / "out").git.commit == said(other, "rev-parse", "HEAD")


def test_a_checkout_of_long_hashes_keeps_them(tmp_path: Path) -> None:
    root = made(tmp_path / "long", {"a.txt": "a\n"}, "--object-format=sha256")
    archive = pack_setting(root, tmp_path / "out")
    assert len(archive.git.commit) == 64
    arrived = unpacked(archive, tmp_path / "there")
    assert said(arrived, "status", "--porcelain") == ""
    assert said(arrived, "rev-parse", "HEAD") == archive.git.commit


def test_what_isnt_a_whole_checkout_is_refused_in_one_line(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    subprocess.run(["git", "init", "-q", str(tmp_path / "fresh")], check=True)
    staged = tmp_path / "staged"
    subprocess.run(["git", "init", "-q", str(staged)], check=True)
    (staged / "a.txt").write_text("a\n")
    git(staged, "add", "a.txt")
    broken = made(tmp_path / "broken", {"pyproject.toml": "[project\n"})
    cases = {
        tmp_path / "nowhere": "there is no such folder",
        checkout / "run.sh": "it is a file",
        tmp_path / "empty": "not a git repository",
        tmp_path / "fresh": "git tracks no file",
        staged: "it has no commit yet",
        checkout / "ct_plugin": "name the checkout itself",
        broken: r"its pyproject\.toml is malformed",
    }
    for path, why in cases.items():
        with pytest.raises(SettingRefused, match=why) as refused:
            pack_setting(path, tmp_path / "out")
        assert str(refused.value).startswith(f"setting {path} refused: ")
        assert refused.value.exit_code == 2
        assert "\n" not in str(refused.value)
    monkeypatch.setattr(source, "LARGEST", 10)
    with pytest.raises(SettingRefused, match=r"GiB, more than .* such as in a bucket"):
        pack_setting(checkout, tmp_path / "out")


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("with space", "named by its folder"),
        (".hidden", "named by its folder"),
        ("naïve", "named by its folder"),
        ("x" * 101, "101 characters"),
        ("tools.env", "ends like a file of values"),
        ("/", "named by its folder"),
    ],
)
def test_a_name_that_serves_no_folder_and_no_parameter_is_refused(folder: str, why: str) -> None:
    with pytest.raises(SettingRefused, match=why):
        setting_name(f"/tmp/{folder}" if folder != "/" else "/")  # noqa: S108


@given(
    st.lists(st.text(st.sampled_from("aZ0._- /~é\n"), max_size=12).map(lambda text: text + ".env" * (len(text) % 2)))
)
def test_no_setting_lies_where_another_or_its_values_do(names: list[str]) -> None:
    """Whatever folders are called: accepted names are folders, files of values and ends of parameters of their own."""
    accepted = []
    for name in names:
        with suppress(SettingRefused):
            accepted.append(setting_name(Path("/somewhere", name)))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) and name not in (".", "..") for name in accepted)
    assert {f"{name}.env" for name in accepted}.isdisjoint(accepted)


def test_two_settings_of_one_name_are_refused_and_the_order_says_nothing(tmp_path: Path) -> None:
    assert list(settings_by_name(["/a/two", "/b/one/", "/c/x/../three"])) == ["one", "three", "two"]
    with pytest.raises(SettingRefused, match=r"/b/one refused: /a/one is called one as well"):
        settings_by_name(["/a/one", "/b/one"])
    with pytest.raises(SettingRefused, match="it is named twice"):
        settings_by_name(["/a/one", "/a/one/"])
    one, two = (made(tmp_path / name, {"a.txt": name}) for name in ("one", "two"))
    there, back = (pack_settings([str(a), str(b)], tmp_path / "out") for a, b in ((one, two), (two, one)))
    assert there == back


def test_a_link_gives_a_checkout_another_name(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "renamed").symlink_to(checkout)
    assert pack_setting(tmp_path / "renamed", tmp_path / "out").name == "renamed"
    assert values_file(tmp_path / "renamed") == tmp_path / "renamed.env"
    monkeypatch.chdir(checkout)
    assert setting_name(".") == "tools"
    assert values_file(".") == tmp_path / "tools.env"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert values_file("~/tools") == tmp_path / "tools.env"


def test_a_setting_need_not_be_a_package(tmp_path: Path) -> None:
    plain = made(tmp_path / "plain", {"pyproject.toml": "[tool.ruff]\nline-length = 100\n", "data.csv": "1\n"})
    archive = pack_setting(plain, tmp_path / "out")
    assert not archive.package
    assert warnings_about(archive) == []
    (plain / "pyproject.toml").write_text("[tool.uv.workspace]\nmembers = ['a']\n")
    assert pack_setting(plain, tmp_path / "out").package
