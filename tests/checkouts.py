"""Small git checkouts for tests: no checkout can lie in this repository's own files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

KIT = Path(__file__).parent / "fixtures" / "settingkit"


def setting_kit(folder: Path) -> Path:
    """A checkout of the setting of `tests/fixtures`, always of the same commit, so that what is built of it is found again."""
    root = folder / KIT.name
    shutil.copytree(KIT, root, ignore=shutil.ignore_patterns("__pycache__"))
    return made(root, {})


def made(root: Path, files: Mapping[str, str], *options: str) -> Path:
    """A checkout of these files, committed. `options`: of `git init`."""
    subprocess.run(["git", "init", "-q", *options, str(root)], check=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", "-A")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> None:
    """Run git there. Submodules may lie on this machine; a commit is always of the same time."""
    command = ["git", "-C", str(root), "-c", "protocol.file.allow=always", *arguments]
    when = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z")
    subprocess.run(command, check=True, env={**os.environ, **when})


def commit(root: Path, message: str = "work") -> None:
    """Commit what is staged."""
    git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", message)
