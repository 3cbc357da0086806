"""What the harness runs: Hawk's server and runner, PostgreSQL, and an interpreter that Hawk accepts.

Everything that a package index has is installed into the cache folder, once; what it has not, is asked for in one line.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.cache import cache_folder

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
PYTHON = "FLEET_HAWK_CPYTHON"
"""Environment variable that names the interpreter where it is not found by itself."""
DEBIAN = Path("/usr/lib/postgresql")


class ToolMissing(Exception):
    """One line: what is missing, and how to have it."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Where everything lies."""

    server: Path
    """The Python with `hawk[api]`, and uv beside it."""
    runner: Path
    """The Python with `hawk[runner,inspect]`, and uv: the server's packages and the runner's exclude each other."""
    client: Path
    """The Python with all that this project's tests need, and `hawk[client]`."""
    postgres: Path
    """The folder of PostgreSQL's programs."""
    packages: Path
    """uv's cache, for the environments that runners make."""


def tools(say: Callable[[str], None]) -> Tools:
    """All of it, installed now where it wasn't. ToolMissing: that is not possible here."""
    programs = postgres()
    if shutil.which("setpriv") is None:
        raise ToolMissing("no setpriv on PATH: the harness needs util-linux (apt-get install util-linux)")
    folder = cache_folder() / f"hawk-{hawk_release()}"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        made = {name: _venv(folder / name, requirements, say) for name, requirements in _requirements().items()}
    return Tools(made["server"], made["runner"], made["client"], programs, folder / "packages")


def hawk_release() -> str:
    """The release whose client is locked: server and runner are of the same."""
    (release,) = re.findall(r"^hawk==(\S+)", LOCK.read_text(), re.MULTILINE)
    return str(release)


def postgres(debian: Path = DEBIAN) -> Path:
    """PostgreSQL's programs: those beside the `initdb` on PATH, else the newest that Debian installed."""
    found = [path for path in debian.glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: float(path.parent.name))
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    raise ToolMissing("no PostgreSQL server here: apt-get install postgresql")


def cpython() -> Path:
    """An interpreter of 3.13: the one named by the environment, else one on PATH or of pyenv that answers."""
    named = os.environ.get(PYTHON)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    usual = [shutil.which("python3.13"), *sorted(pyenv.glob("versions/3.13*/bin/python3.13"), reverse=True)]
    for candidate in [named] if named else [sys.executable, *usual]:
        if candidate and _version(candidate) == "3.13":
            return Path(candidate)
    raise ToolMissing(f"no CPython 3.13 {f'at {named}' if named else 'on PATH'}: set {PYTHON}=/path/to/python3.13")


def _version(python: str | Path) -> str | None:
    try:
        answer = subprocess.run(
            [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):  # a shim of pyenv without that version exits with 127
        return None
    return answer.stdout.strip()


def _requirements() -> dict[str, list[Sequence[str]]]:
    """What uv installs into each environment, call by call."""
    release = hawk_release()
    return {
        "server": [[f"hawk[api]=={release}", "uv"]],
        "runner": [[f"hawk[runner,inspect]=={release}", "uv"]],
        "client": [
            ["--require-hashes", "-r", str(LOCK)],
            ["--no-deps", "--editable", str(ROOT)],
        ],
    }


def _venv(folder: Path, calls: Sequence[Sequence[str]], say: Callable[[str], None]) -> Path:
    """The Python of an environment with these packages. It is made anew where it was made for others."""
    python, mark = folder / "bin" / "python", folder / "made-for"
    wanted = repr(calls) + LOCK.read_text() * (folder.name == "client")
    if python.exists() and mark.exists() and mark.read_text() == wanted:
        return python
    say(f"installing into {folder}")
    interpreter = cpython()
    uv = str(Path(sys.executable).with_name("uv"))
    _run([uv, "venv", "--quiet", "--clear", "--python", str(interpreter), str(folder)])
    for call in calls:
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *call])
    mark.write_text(wanted)
    return python


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    except subprocess.CalledProcessError as error:
        raise ToolMissing(f"`{' '.join(command)}` ended with {error.returncode}: {error.stderr[-2000:]}") from error


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One at a time installs."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
