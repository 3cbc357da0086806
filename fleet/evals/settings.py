"""Settings: checkouts of packages that tasks read while they run, packed for the way.

A setting lies at `.settings/<name>/` below the folder in which jobs start, wherever they run. It travels as two archives,
its files and a shallow `.git`, and is called by its folder's name. Its values (`<checkout>.env`, beside the checkout) are
secret and never part of it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import RequestRefused
from fleet.evals.documents import SettingSpec
from fleet.evals.shallow_git import GitUnreadable, ShallowGit, pack_shallow_git
from fleet.evals.source import SourceArchive, SourceUnreadable, list_files, pack_listing

FOLDER = ".settings"
"""Below the working folder of jobs; holds a folder for each setting and, beside it, the file of its values."""

PLUGIN = "ct_plugin"
"""Folder of a setting's plugin: a package that joins the job environment, so that it may register tasks with Inspect.

The name is kept for the settings there are already, which have it so.
"""

VALUES_ENDING = ".env"

LONGEST_NAME = 100
"""Characters. A setting's name is the end of a parameter's name, which SSM limits."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SettingRefused(RequestRefused):
    """A setting of the request can't travel to where its jobs run."""

    setting: str
    """As it is asked for: a path."""
    why: str

    def message(self) -> str:
        """One line: which folder, and what is wrong with it."""
        return f"setting {self.setting} refused: {self.why}"


@dataclass(frozen=True, slots=True)
class SettingArchive:
    """A packed setting."""

    checkout: Path
    name: str
    files: SourceArchive
    """The tracked files as they lie there now."""
    git: ShallowGit
    """The checked-out commit as a shallow `.git`."""
    package: bool
    """It has an environment of its own."""
    plugin: bool
    """It has a package that joins the job environment."""
    locked: bool
    """A package with a uv.lock: its environment is the same each time."""

    @property
    def spec(self) -> SettingSpec:
        """What travels with a job environment's spec."""
        return SettingSpec(
            name=self.name,
            files=self.files.sha256,
            git=self.git.sha256,
            commit=self.git.commit,
            package=self.package,
            plugin=self.plugin,
        )


def checkout_of(setting: str | Path) -> Path:
    """The folder that a request means, absolute. A link keeps its own name: a person may call a checkout as they like."""
    return Path(os.path.abspath(Path(setting).expanduser()))  # noqa: PTH100 - resolve() would follow links


def setting_name(setting: str | Path) -> str:
    """The setting's name: its folder's. SettingRefused: one that can't name a folder, a parameter and a file alike."""
    name = checkout_of(setting).name
    why = ""
    if not _NAME.fullmatch(name):
        why = "a setting is named by its folder: letters, digits, `.`, `_` and `-`, and a letter or digit in front"
    elif len(name) > LONGEST_NAME:
        why = f"its folder's name has {len(name)} characters, more than {LONGEST_NAME}"
    elif name.endswith(VALUES_ENDING):
        why = f"its folder's name ends like a file of values ({VALUES_ENDING})"
    if why:
        raise SettingRefused(setting=str(setting), why=f"{name!r}: {why}. Rename the folder, or link to it")
    return name


def settings_by_name(settings: Sequence[str]) -> dict[str, Path]:
    """The checkouts of a request by their settings' names, sorted. SettingRefused: a bad name, or one that two have."""
    found: dict[str, Path] = {}
    for setting in settings:
        name, checkout = setting_name(setting), checkout_of(setting)
        if name in found:
            same = "it is named twice" if found[name] == checkout else f"{found[name]} is called {name} as well"
            raise SettingRefused(setting=str(setting), why=same)
        found[name] = checkout
    return dict(sorted(found.items()))


def values_file(setting: str | Path) -> Path:
    """Where a setting's values lie if it has any: `<checkout>.env`, beside the checkout."""
    checkout = checkout_of(setting)
    return checkout.with_name(checkout.name + VALUES_ENDING)


def pack_settings(settings: Sequence[str], folder: Path) -> tuple[SettingArchive, ...]:
    """Pack the settings of a request into `folder`, by name. SettingRefused: one of them can't be."""
    found = settings_by_name(settings)
    return tuple(pack_setting(checkout, folder) for checkout in found.values())


def pack_setting(setting: str | Path, folder: Path) -> SettingArchive:
    """Pack one setting into `folder`. SettingRefused: it isn't a whole checkout with a commit, or can't be read."""
    name, checkout = setting_name(setting), checkout_of(setting)
    try:
        listing = list_files(checkout)
        files = pack_listing(listing, folder)
        git = pack_shallow_git(checkout, folder)
    except (SourceUnreadable, GitUnreadable) as error:
        raise SettingRefused(setting=str(setting), why=error.why) from error
    package = "pyproject.toml" in listing.names and _is_package(checkout / "pyproject.toml")
    return SettingArchive(
        checkout=checkout,
        name=name,
        files=files,
        git=git,
        package=package,
        plugin=f"{PLUGIN}/pyproject.toml" in listing.names,
        locked=package and "uv.lock" in listing.names,
    )


def warnings_about(setting: SettingArchive) -> list[str]:
    """What a person should know of a setting that is shipped, a line each."""
    lines = []
    if setting.package and not setting.locked:
        lines.append(
            f"setting {setting.name} has no uv.lock: each machine resolves its packages anew (uv lock, then git add)"
        )
    return lines


def _is_package(manifest: Path) -> bool:
    """Whether uv makes an environment of it: one that only holds the settings of tools describes none."""
    described = tomllib.loads(manifest.read_text(encoding="utf-8"))  # packing has read it: it isn't malformed
    uv = described.get("tool", {}).get("uv", {})
    return bool({"project", "build-system"} & described.keys()) or "workspace" in uv
