"""A package as its authors publish it: a checkout whose commit its https remote has, without a server of that name.

Whoever fetches from the remote is led to a folder by git's own configuration, which the environment carries.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.checkouts import git, made

REMOTE = "https://git.example.org/team/"
KIT = Path(__file__).parents[1] / "fixtures" / "evalkit"


@dataclass(frozen=True, slots=True)
class Published:
    """A package in a repository of its own."""

    checkout: Path
    remote: str
    """The address that the checkout calls its origin."""
    commit: str
    environment: Mapping[str, str]
    """Leads git from that address to where the repository lies."""


def published(folder: Path, package: Path = KIT) -> Published:
    """A checkout of a copy of this package, its commit pushed."""
    name = package.name
    bare, checkout = folder / "remotes" / f"{name}.git", folder / name
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    shutil.copytree(package, checkout, ignore=shutil.ignore_patterns("__pycache__"))
    made(checkout, {}, "--initial-branch=main")
    git(checkout, "push", "-q", str(bare), "main")
    remote = f"{REMOTE}{name}.git"
    git(checkout, "remote", "add", "origin", remote)
    environment = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{bare.parent}/.insteadOf",
        "GIT_CONFIG_VALUE_0": REMOTE,
    }
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    git(checkout, "update-ref", "refs/remotes/origin/main", commit)
    return Published(checkout, remote, commit, environment)
