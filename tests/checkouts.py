"""Small git checkouts for tests: no checkout can lie in this repository's own files."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


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
    """Run git there. Submodules may lie on this machine."""
    subprocess.run(["git", "-C", str(root), "-c", "protocol.file.allow=always", *arguments], check=True)


def commit(root: Path, message: str = "work") -> None:
    """Commit what is staged."""
    git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", message)
