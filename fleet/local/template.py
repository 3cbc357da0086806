"""Databases to begin with: a Prefect server needs some 15 seconds to make its tables, and a copied file has them at once.

Two are kept in the cache folder. `tables` belongs to the releases that made it and holds tables and block types only; `cloud`
belongs to all that a deployment is made of and holds pools, blocks and deployments too. Each is named by a digest of what it
depends on, so that a stale one is never used; it is made by the first cloud that needs it and copied by all others.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import fleet
from fleet.account.definition import deployments_file

Kind = Literal["tables", "cloud"]

RELEASES = ("prefect", "prefect-aws")
"""The packages whose tables and block types are in a database."""

SHAPING = (
    "flows/*.py",
    "blocks/*.py",
    "fleet/evals/documents.py",
    "fleet/evals/report.py",
    "fleet/account/names.py",
    "fleet/account/server.py",
    "fleet/evals/request.py",
    "fleet/local/deploy.py",
    "fleet/local/preset.py",
    "fleet/pool/setup.py",
    "fleet/pool/variables.py",
    "fleet/pool/worker.py",
    "fleet/wire.py",
)
"""The files whose content shows, beside that of `deployments_file()`, in pools, blocks, deployments and their forms."""

KEPT = 3
"""Databases of each kind that stay: with several checkouts on one machine each finds its own."""


@dataclass(frozen=True, slots=True)
class Templates:
    """The databases in one cache folder, for the code in one folder."""

    folder: Path
    code: Path
    deployments: Path
    """The file that `deploy` applies."""
    releases: tuple[str, ...]

    def path(self, kind: Kind) -> Path:
        """Where the database of this kind is, or would be."""
        digest = hashlib.sha256("\n".join(self.releases).encode())
        if kind == "cloud":
            shaping = [file for pattern in SHAPING for file in sorted(self.code.glob(pattern))]
            for file in (self.deployments, *shaping):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{file.name} {content}\n".encode())
        return self.folder / f"{kind}-{digest.hexdigest()[:16]}.db"

    def copy_to(self, database: Path) -> Kind | None:
        """Begin `database` with the best there is; None: there is none yet."""
        kinds: tuple[Kind, ...] = ("cloud", "tables")
        for kind in kinds:
            template = self.path(kind)
            if template.exists():
                shutil.copyfile(template, database)
                os.utime(template)  # the least recently used are removed first
                return kind
        return None

    def keep(self, kind: Kind, database: Path) -> None:
        """Make a template of `database`, which a server may have open; older ones of the kind are removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        template = self.path(kind)
        aside = template.with_name(f"{template.name}.{os.getpid()}")
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(aside)) as target:
            source.backup(target)
        aside.replace(template)
        by_age = sorted(self.folder.glob(f"{kind}-*.db"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in by_age[KEPT:]:
            old.unlink(missing_ok=True)


def templates(cache: Path) -> Templates:
    """The templates for the code that runs now."""
    releases = tuple(f"{package} {importlib.metadata.version(package)}" for package in RELEASES)
    return Templates(
        folder=cache / "templates",
        code=code_folder(),
        deployments=deployments_file(),
        releases=(f"fleet {fleet.__version__}", *releases),
    )


def code_folder() -> Path:
    """The folder that holds the rooms."""
    return Path(fleet.__file__).resolve().parent.parent
