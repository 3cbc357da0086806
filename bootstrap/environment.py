"""The job environment: the user's packages and source, resolved once and built alike wherever jobs run.

`resolve` turns what a request names into an `EnvironmentSpec` (exact versions, no index address); `build` makes it real.
Planner, local backend and fleet workers all call `build`, so what was planned is what runs. An environment is found by the
content of its spec under the cache folder and is never changed once it is ready: its path goes into editable installs and
script headers, so it is built in place, under a lock, and counts only when its `ready` file is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bootstrap.settings import install_plugins, place_settings, plugin_inputs, sync_packages, with_places
from bootstrap.unpacking import EnvironmentUnbuildable, unpack, unpack_artifact
from bootstrap.uv import LONGEST_SECONDS, decisive_line, run_uv
from fleet.cache import cache_folder
from fleet.errors import RequestRefused
from fleet.evals.documents import EnvironmentSpec
from fleet.evals.settings import SettingArchive
from fleet.evals.source import SourceArchive
from fleet.file_lock import locked

INSPECT_FLOOR = "0.3.278"
"""The first Inspect that can run one epoch of a sample by itself (`enqueue_sample(epoch=…)`)."""

LOCK_KEEPS_S = 7 * 24 * 3600
"""Seconds for which the same request gets the same versions: it resumes, although a dependency made a release meanwhile."""

LOCKED_S = 2 * LONGEST_SECONDS
"""Seconds that another process may take to build the environment we want; it is made of uv commands, each with its own bound."""

_FORMAT = "1"
"""Part of every cache key: raise it when an environment is built another way."""


class PackagesUnresolvable(RequestRefused):
    """No set of versions satisfies the request's packages, or one of them can't travel to a worker."""

    packages: list[str]
    why: str

    def message(self) -> str:
        """Which packages, and uv's decisive sentence."""
        named = ", ".join(self.packages) or "the source's dependencies"
        return f"packages refused ({named}): {self.why}"


class InspectTooOld(RequestRefused):
    """The job environment would get an Inspect that can't run single epochs."""

    found: str
    where: str

    def message(self) -> str:
        """The version found, where it is asked for, and the one that is needed."""
        return (
            f"inspect-ai {self.found} ({self.where}) is too old: the job environment needs inspect-ai>={INSPECT_FLOOR}"
        )


class PythonUnavailable(RequestRefused):
    """There is no such Python, and uv can't get one."""

    python: str
    why: str

    def message(self) -> str:
        """Which Python, and why not."""
        return f"Python {self.python} for the job environment isn't available: {self.why}"


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """A built environment: never changed, shared by every process that asks for its spec."""

    spec: EnvironmentSpec
    python: Path
    source: Path | None
    """The unpacked source, when the spec has one."""

    @property
    def folder(self) -> Path:
        """The folder in the cache that holds it all."""
        return self.python.parent.parent.parent

    @property
    def working_folder(self) -> Path:
        """Where job processes start: the source, so that `file.py@task` is found; otherwise an empty folder."""
        return self.source or self.folder / "empty"


def resolve(
    packages: Sequence[str],
    source: SourceArchive | None,
    python: str | None,
    settings: Sequence[SettingArchive] = (),
    *,
    cache: Path | None = None,
) -> EnvironmentSpec:
    """The environment of `packages` and of what the source and the plugins of settings depend on, every version exact.

    The source's `uv.lock` is obeyed where there is one. Where nothing names inspect-ai, our own version is taken unless
    the packages exclude it. PackagesUnresolvable, InspectTooOld, PythonUnavailable: the request is at fault.
    """
    for package in packages:
        _check_travels(package, packages)
    wanted = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    cache = cache or cache_folder()
    # Only plugins join the job environment; one may depend on any package that lies beside it.
    joining = [f"{one.name} {one.files.sha256}" for one in settings] if any(one.plugin for one in settings) else []
    content = source.sha256 if source else ""
    key = _digest([_FORMAT, wanted, _own_inspect() or "", content, *joining, *sorted(packages)])
    kept = cache / "locks" / f"{key}.txt"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - kept.stat().st_mtime < LOCK_KEEPS_S:
            return _spec(wanted, kept.read_text(), source, settings)
    with tempfile.TemporaryDirectory(prefix="inspect-fleet-") as scratch:
        folder = Path(scratch).resolve()
        lock = _compile(packages, source, settings, wanted, folder)
    kept.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(kept, lock)
    return _spec(wanted, lock, source, settings)


def built(spec: EnvironmentSpec, *, cache: Path) -> JobEnvironment | None:
    """The environment of `spec`, if `cache` has it."""
    environment, ready = _place(spec, cache)
    return environment if ready.exists() else None


def build(spec: EnvironmentSpec, *, cache: Path, artifact: Callable[[str], Path]) -> JobEnvironment:
    """The environment of `spec`, built now unless `cache` has it. Two processes that ask at once build once.

    `artifact` gives the local file of a content address; it is asked only for what isn't unpacked yet.
    EnvironmentUnbuildable, PythonUnavailable: uv refused; nothing half-built is ever taken for ready. FileLocked: the other one
    hangs.
    """
    environment, ready = _place(spec, cache)
    if ready.exists():
        return environment
    folder = ready.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock"), seconds=LOCKED_S):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _install(spec, environment, artifact)
            ready.touch()
    return environment


def _place(spec: EnvironmentSpec, cache: Path) -> tuple[JobEnvironment, Path]:
    """Where it is, and what is there when it is whole."""
    folder = cache.resolve() / "environments" / _digest([_FORMAT, spec.write()])
    source = folder / "source" if spec.source else None
    return JobEnvironment(spec=spec, python=folder / "venv" / "bin" / "python", source=source), folder / "ready"


def _compile(
    packages: Sequence[str],
    source: SourceArchive | None,
    settings: Sequence[SettingArchive],
    python: str,
    folder: Path,
) -> str:
    """The lock text, by `uv pip compile` in a scratch `folder`."""
    tree = folder / "source"
    tree.mkdir()
    if source is not None:
        unpack(source.path, tree)
    manifest = next((name for name in ("pyproject.toml", "setup.py") if (tree / name).exists()), None)
    inputs = [manifest] if source is not None and source.installable and manifest else []
    pins = _pins_of_uv_lock(tree) if inputs else ""
    plugins = plugin_inputs(settings, tree)
    asked = [*packages, *plugins]
    if (locked := inspect_version(pins)) and _numbers(locked) < _numbers(INSPECT_FLOOR):
        raise InspectTooOld(found=locked, where="pinned by the source's uv.lock")

    def attempt(*, floor: bool, ours: str | None) -> subprocess.CompletedProcess[str]:
        (folder / "wanted.in").write_text(
            "\n".join([*packages, f"inspect-ai>={INSPECT_FLOOR}" if floor else "inspect-ai"])
        )
        (folder / "pins.txt").write_text("\n".join([pins, f"inspect-ai=={ours}" if ours else ""]))
        command = [
            "pip",
            "compile",
            str(folder / "wanted.in"),
            *inputs,
            *plugins,
            "--constraint",
            str(folder / "pins.txt"),
        ]
        command += ["--universal", "--python-version", python, "--python", _interpreter(python)]
        return run_uv([*command, "--no-header", "--no-annotate", "--no-progress"], cwd=tree)

    ours = None if locked or any(_names_inspect(package) for package in packages) else _own_inspect()
    answer = attempt(floor=True, ours=ours)
    if answer.returncode and ours:  # the packages exclude our version: any that can do the work will do
        answer = attempt(floor=True, ours=None)
    if answer.returncode:
        older = attempt(floor=False, ours=None)
        found = inspect_version(older.stdout) if older.returncode == 0 else None
        if found and _numbers(found) < _numbers(INSPECT_FLOOR):
            raise InspectTooOld(found=found, where="all that the packages allow")
        raise PackagesUnresolvable(packages=asked, why=decisive_line(answer.stderr))
    lock = answer.stdout.replace(f"file://{tree}", ".").replace(str(tree), ".").strip() + "\n"
    lock = with_places(lock, settings, tree) if plugins else lock
    if stray := re.search(r"^(?:-e +)?(/\S*|\S+ @ file:\S+|file:\S+|\.\.(?:/\S*)?(?=\s|$))", lock, re.MULTILINE):
        raise PackagesUnresolvable(
            packages=asked, why=f"{stray[1]} lies outside the source, so it can't travel to a worker"
        )
    return lock


def _pins_of_uv_lock(tree: Path) -> str:
    """The versions in the source's uv.lock as constraints; none where there is no lock or it can't be read."""
    if not (tree / "uv.lock").exists():
        return ""
    answer = run_uv(
        ["export", "--frozen", "--no-dev", "--no-hashes", "--no-header", "--no-annotate", "--no-emit-workspace"],
        cwd=tree,
    )
    if answer.returncode:
        raise PackagesUnresolvable(packages=[], why=f"the source's uv.lock: {decisive_line(answer.stderr)}")
    return "\n".join(line for line in answer.stdout.splitlines() if re.match(r"^[A-Za-z0-9][\w.-]*==", line))


def _install(spec: EnvironmentSpec, environment: JobEnvironment, artifact: Callable[[str], Path]) -> None:
    """Fill the environment's empty folder. The `ready` file is the caller's."""
    folder = environment.folder
    (folder / "empty").mkdir()
    if spec.source and environment.source:
        unpack_artifact(spec.source, artifact, environment.source, "the source")
    place_settings(spec.settings, environment.working_folder, artifact)
    sync_packages(spec.settings, environment.working_folder)  # nobody waits for the rest if one of them fails
    (folder / "lock.txt").write_text(spec.lock)
    made = run_uv(
        ["venv", "--no-project", "--no-progress", "--python", _interpreter(spec.python), str(folder / "venv")],
        cwd=folder / "empty",
    )
    if made.returncode:
        raise PythonUnavailable(python=spec.python, why=decisive_line(made.stderr))
    install = ["pip", "install", "--python", str(environment.python), "--no-deps", "--no-progress"]
    steps = [("install the packages", [*install, "--requirement", str(folder / "lock.txt")])]
    if spec.installable:
        steps.append(("install the source", [*install, "--editable", "."]))
    for step, command in steps:
        # In the source, so that its own [tool.uv] settings hold as they did when it was resolved.
        answer = run_uv(command, cwd=environment.working_folder)
        if answer.returncode:
            raise EnvironmentUnbuildable(step=step, why=decisive_line(answer.stderr))
    install_plugins(spec.settings, environment.working_folder, install)


def inspect_version(lock: str) -> str | None:
    """The version of inspect-ai that a lock pins."""
    found = re.search(r"^inspect[-_.]ai==([^\s;]+)", lock, re.MULTILINE | re.IGNORECASE)
    return found[1] if found else None


def _check_travels(package: str, packages: Sequence[str]) -> None:
    """Refuse what isn't a requirement that any machine can resolve."""
    text = package.strip()
    if not text or text.startswith("-") or "\n" in text:
        raise PackagesUnresolvable(packages=list(packages), why=f"{package!r} isn't a requirement")
    if text.startswith((".", "/", "~", "file:")) or re.search(r"@\s*file:", text):
        raise PackagesUnresolvable(
            packages=list(packages), why=f"{text} is a path of this machine; a checkout travels as `source`"
        )


def _names_inspect(package: str) -> bool:
    return re.match(r"inspect[-_.]ai(?![\w.-])", package.strip(), re.IGNORECASE) is not None


def _own_inspect() -> str | None:
    try:
        version = metadata.version("inspect-ai")
    except metadata.PackageNotFoundError:
        return None
    return version if re.fullmatch(r"[\d.]+", version) else None  # a development build can't be installed elsewhere


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _spec(python: str, lock: str, source: SourceArchive | None, settings: Sequence[SettingArchive]) -> EnvironmentSpec:
    return EnvironmentSpec(
        python=python,
        lock=lock,
        source=source.sha256 if source else None,
        installable=source.installable if source else False,
        settings=[setting.spec for setting in settings],
    )


def _interpreter(python: str) -> str:
    """Our own interpreter where it is of that version (a venv's would be found otherwise), else a version for uv."""
    ours = ".".join(str(part) for part in sys.version_info[:3])
    own = getattr(sys, "_base_executable", None) or sys.executable
    return own if f"{ours}.".startswith(f"{python}.") else python


def _write_whole(path: Path, text: str) -> None:
    """Readers see the old file or the new one, never half of one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
