from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fleet.hawk.pushed import NotPushed, PushedSource, installable_address, pushed_source

PYPROJECT = """
[project]
name = "my-evals"
version = "1"
[project.entry-points.inspect_ai]
my_evals = "my_evals.registry"
"""
REMOTE = "https://git.example.org/team/evals.git"


def git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    ended = subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True, text=True)
    return ended.stdout.strip()


def pushed(root: Path, address: str = REMOTE, remote: str = "origin") -> None:
    """As if the commit had been pushed: what this machine knows of it."""
    git(root, "remote", "add", remote, address)
    git(root, "update-ref", f"refs/remotes/{remote}/main", "HEAD")


def problems(path: Path) -> list[str]:
    found = pushed_source(path)
    assert isinstance(found, NotPushed)
    return list(found.problems)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package at its top, another one in a folder, and a commit that is nowhere else."""
    root = tmp_path / "checkout"
    inner = root / "more evals"
    inner.mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (inner / "pyproject.toml").write_text(PYPROJECT.replace("my-evals", "more"))
    (root / "notes").mkdir()
    (root / "notes" / "a.txt").write_text("a\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "work")
    return root


def test_a_clean_and_pushed_checkout_is_its_commit(checkout: Path) -> None:
    pushed(checkout)
    (checkout / "mine.txt").write_text("mine\n")
    assert pushed_source(checkout) == PushedSource(
        url=f"git+{REMOTE}@{git(checkout, 'rev-parse', 'HEAD')}",
        name="my-evals",
        provides=frozenset({"my_evals"}),
        untracked=("mine.txt",),
    )


def test_a_folder_of_a_checkout_is_a_subdirectory(checkout: Path) -> None:
    pushed(checkout)
    (checkout / "notes" / "a.txt").write_text("changed beside it\n")
    found = pushed_source(checkout / "more evals")
    assert isinstance(found, PushedSource)
    assert found.url.endswith(f"@{git(checkout, 'rev-parse', 'HEAD')}#subdirectory=more%20evals")
    assert found.name == "more"


def test_a_commit_that_was_pushed_to_another_remote_comes_from_there(checkout: Path) -> None:
    git(checkout, "remote", "add", "origin", REMOTE)
    pushed(checkout, "git@fork.example.org:me/evals.git", "fork")
    found = pushed_source(checkout)
    assert isinstance(found, PushedSource)
    assert found.url.startswith("git+https://fork.example.org/me/evals.git@")


def test_all_that_is_wrong_is_said_at_once(checkout: Path) -> None:
    git(checkout, "remote", "add", "origin", REMOTE)
    (checkout / "pyproject.toml").write_text("[tool.ruff]\n")
    package, dirty, unpushed = problems(checkout)
    assert "is no package" in package
    assert "changes that aren't committed" in dirty
    assert "(pyproject.toml)" in dirty
    assert "at a commit that no remote has" in unpushed
    assert str(checkout) in package


def test_a_checkout_without_a_remote_is_to_be_pushed(checkout: Path) -> None:
    assert problems(checkout) == [
        f"the source {checkout} has no remote, and Hawk installs what is pushed: push it to one"
    ]


@pytest.mark.parametrize("change", ["staged", "deleted"])
def test_every_uncommitted_change_counts(checkout: Path, change: str) -> None:
    pushed(checkout)
    if change == "staged":
        (checkout / "new.py").write_text("one = 1\n")
        git(checkout, "add", "new.py")
    else:
        (checkout / "notes" / "a.txt").unlink()
    [dirty] = problems(checkout)
    assert "aren't committed" in dirty


def test_what_is_no_checkout_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    assert "there is no such folder" in problems(tmp_path / "nothing")[0]
    (tmp_path / "plain").mkdir()
    assert "can't be sent" in problems(tmp_path / "plain")[0]


def test_a_checkout_without_a_commit_is_to_be_pushed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    git(tmp_path, "add", ".")
    assert "it has no commit yet" in problems(tmp_path)[0]


def test_what_only_the_build_knows_isnt_guessed(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text(PYPROJECT.split("[project.entry")[0] + 'dynamic = ["entry-points"]\n')
    git(checkout, "commit", "-qam", "dynamic")
    pushed(checkout)
    found = pushed_source(checkout)
    assert isinstance(found, PushedSource)
    assert found.provides is None


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/org/evals.git", "https://github.com/org/evals.git"),
        ("http://127.0.0.1:8000/evals.git", "http://127.0.0.1:8000/evals.git"),
        ("git@github.com:org/evals.git", "https://github.com/org/evals.git"),
        ("github.com:org/evals", "https://github.com/org/evals"),
        ("ssh://git@github.com/org/evals.git", "https://github.com/org/evals.git"),
    ],
)
def test_a_remote_is_reached_by_https(url: str, address: str) -> None:
    assert installable_address(url, "origin") == (address, "")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://user:hunter2@github.com/org/evals.git", "credentials"),
        ("https://hunter2@github.com/org/evals.git", "credentials"),
        ("ssh://git@git.example.org:2222/org/evals.git", "can't reach"),
        ("/srv/git/evals.git", "can't reach"),
        ("../evals.git", "can't reach"),
        ("file:///srv/git/evals.git", "can't reach"),
        ("C:/git/evals", "can't reach"),
    ],
)
def test_a_remote_that_a_runner_cant_use_is_named_without_its_secrets(url: str, says: str) -> None:
    address, why = installable_address(url, "origin")
    assert not address
    assert says in why
    assert "hunter2" not in why
