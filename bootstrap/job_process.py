"""How a process of a job environment is started: the runner's entry by path, and an environment that keeps it to its work."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from bootstrap.environment import JobEnvironment
from fleet.evals.variable_names import ALLOWED

SAID_BYTES = 8192
"""Of a runner's output in the record of a failure: a traceback, and what came before it."""
TAIL_BYTES = 4000
TAIL_LENGTH = 600

ENTRY = Path(__file__).with_name("runner") / "__main__.py"

_OWN_PYTHON = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT_TEST"})
"""Variables that belong to the Python that runs us."""

_OPTIONS = ("INSPECT_EVAL_", "INSPECT_LOG_", "INSPECT_DEBUG")
"""Prefixes of variables by which Inspect takes options of an eval. The request is to say them all: planner, runners and
plain Inspect see the same, whoever's shell the run was started from."""


def command(environment: JobEnvironment, verb: str, *arguments: str) -> list[str]:
    """The command line of a verb of the runner."""
    return [str(environment.python), str(ENTRY), verb, *arguments]


def variables(environment: JobEnvironment, given: Mapping[str, str], user: str | None = None) -> dict[str, str]:
    """The environment of a job process: what was given, without what is Prefect's, our Python's own, or an eval's option."""
    kept = {name: value for name, value in given.items() if not _left_out(name)}
    path = kept.get("PATH", os.defpath)
    settled = {
        "PATH": f"{environment.python.parent}{os.pathsep}{path}",
        "PYTHONHASHSEED": "0",  # sets in the same order in every process: datasets are made of them
        "PYTHONUNBUFFERED": "1",
        "INSPECT_DISPLAY": "none",
        # A checkout that happens to lie around the cache isn't the source's.
        "GIT_CEILING_DIRECTORIES": str(environment.working_folder.parent),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
    }
    # One job at a time in a runner, many runners on a machine: not each with as many threads as there are processors.
    modest = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    them = {}
    if user is not None:
        entry = pwd.getpwnam(user)
        them = {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user}
    return {**modest, **kept, **them, **settled}


def _left_out(name: str) -> bool:
    option = name.startswith(_OPTIONS) and name not in ALLOWED
    return option or name in _OWN_PYTHON or name.startswith("PREFECT")


def identity(user: str | None) -> dict[str, object]:
    """Arguments of subprocess by which a process runs as `user`, with all of their groups (docker among them)."""
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": os.getgrouplist(user, entry.pw_gid)}


def give(path: Path, user: str | None) -> None:
    """Make a file or folder `user`'s own; of a link, the link."""
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def tail(log: Path, lines: int = 3) -> str:
    """The last lines of a log as one, for a message, cut between words: half a secret is none that can be found and hidden."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, size_of(log) - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    said = " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])
    return said if len(said) <= TAIL_LENGTH else said[-TAIL_LENGTH:].partition(" ")[2]


def size_of(log: Path) -> int:
    """Bytes of a log; 0 where there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def said_since(log: Path, start: int) -> str:
    """The end of what was written to a log from byte `start` on, at most `SAID_BYTES`; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, size_of(log) - SAID_BYTES))
            return file.read(SAID_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
