"""Settings at their place in a job environment: unpacked, with environments of their own, their plugins installed.

`build` calls this, so planner, local backend and fleet workers have settings alike, at `.settings/<name>/` below the folder
in which jobs start.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bootstrap.unpacking import EnvironmentUnbuildable, unpack, unpack_artifact
from bootstrap.uv import decisive_line, run_uv
from fleet.evals.documents import SettingSpec
from fleet.evals.settings import FOLDER, PLUGIN, SettingArchive

_LOCAL = re.compile(r"(?P<editable>(?:-e +)?)(?P<path>\S+)(?P<rest>(?: ;.*)?)")
"""A line of a lock that names a package by its path."""


def place_settings(settings: Sequence[SettingSpec], working_folder: Path, artifact: Callable[[str], Path]) -> None:
    """Unpack settings: each one's files, and its `.git` beside them. EnvironmentUnbuildable: the place is taken."""
    for setting in settings:
        where = f"{FOLDER}/{setting.name}"
        folder = working_folder / where
        if os.path.lexists(folder):
            raise EnvironmentUnbuildable(step=f"unpack {where}", why=f"the source has a {where} of its own")
        unpack_artifact(setting.files, artifact, folder, where)
        unpack_artifact(setting.git, artifact, folder / ".git", f"{where}/.git")


def install_plugins(settings: Sequence[SettingSpec], working_folder: Path, install: Sequence[str]) -> None:
    """Install plugins editable by the uv command `install`. EnvironmentUnbuildable names the folder of one that fails."""
    for setting in settings:
        if setting.plugin:
            where = f"{FOLDER}/{setting.name}/{PLUGIN}"
            answer = run_uv([*install, "--editable", f"./{where}"], cwd=working_folder)
            if answer.returncode:
                raise EnvironmentUnbuildable(step=f"install the plugin {where}", why=decisive_line(answer.stderr))


def sync_packages(settings: Sequence[SettingSpec], working_folder: Path) -> None:
    """Give each setting that is a package its environment, in its `.venv`. EnvironmentUnbuildable names one that fails."""
    for setting in settings:
        if not setting.package:
            continue
        where = f"{FOLDER}/{setting.name}"
        folder = working_folder / where
        frozen = ["--frozen"] if (folder / "uv.lock").is_file() else []
        answer = run_uv(
            ["sync", "--no-dev", *frozen, "--no-progress"],
            cwd=folder,
            # There, also where the source is a workspace that takes the setting for a member, or a person has it elsewhere.
            variables={"UV_PROJECT_ENVIRONMENT": str(folder / ".venv")},
        )
        if answer.returncode:
            raise EnvironmentUnbuildable(step=f"uv sync in {where}", why=decisive_line(answer.stderr))


def plugin_inputs(settings: Sequence[SettingArchive], tree: Path) -> list[str]:
    """Unpack the files of settings below `tree` as in a job environment; what uv has to resolve for their plugins."""
    plugins = [setting for setting in settings if setting.plugin]
    for setting in settings if plugins else ():  # a plugin may depend on its setting's own package
        folder = tree / FOLDER / setting.name
        folder.mkdir(parents=True, exist_ok=True)
        unpack(setting.files.path, folder)
    return [f"{FOLDER}/{setting.name}/{PLUGIN}/pyproject.toml" for setting in plugins]


def with_places(lock: str, settings: Sequence[SettingArchive], tree: Path) -> str:
    """The lock with a plugin's neighbours by their place in the job environment.

    uv repeats a path as the plugin names it (`..`), relative to a folder that the lock doesn't say. Where two plugins have
    the same words for different neighbours, both are meant.
    """
    places: dict[str, list[str]] = {}
    for setting in settings:
        if setting.plugin:
            for path, place in _neighbours(tree, tree / FOLDER / setting.name / PLUGIN):
                places.setdefault(path, []).append(place)
    lines: dict[str, None] = {}
    for line in lock.splitlines():
        found = _LOCAL.fullmatch(line)
        if found and found["path"] in places:
            lines |= dict.fromkeys(f"{found['editable']}{place}{found['rest']}" for place in places[found["path"]])
        else:
            lines[line] = None
    return "\n".join(lines) + "\n"


def _neighbours(tree: Path, plugin: Path) -> Iterator[tuple[str, str]]:
    """The packages that a plugin finds by a path: the path as it is written, and the place from `tree` on."""
    described = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))
    for source in described.get("tool", {}).get("uv", {}).get("sources", {}).values():
        for one in source if isinstance(source, list) else [source]:
            path = one.get("path")
            if path and (there := (plugin / path).resolve()).is_relative_to(tree):
                yield path, f"./{there.relative_to(tree)}"
