"""The program uv: how it is called, and which of its lines says why it refused."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from fleet.errors import FleetError

_FAILED = re.compile(r"(Failed to build `[^`]+`)")


class UvMissing(FleetError):
    """The program uv isn't there."""

    def message(self) -> str:
        """What is missing and how to get it."""
        return "uv isn't installed: it builds the job environments (pip install uv)"


_beside: ContextVar[Mapping[str, str]] = ContextVar("uv_variables", default={})  # noqa: B039 - nobody writes into it


@contextlib.contextmanager
def uv_sees(variables: Mapping[str, str]) -> Iterator[None]:
    """For the length of a block, uv and the git that it calls get `variables` (a token, where to find it) beside our own."""
    token = _beside.set(variables)
    try:
        yield
    finally:
        _beside.reset(token)


LONGEST_SECONDS = 3_600.0
"""Of one uv command: an index or a git host that hangs must not hold an instance for its lifetime, nor a nightly run for ever."""
TIMED_OUT = 124
"""Its exit code then, by the custom of timeout(1)."""


def run_uv(
    arguments: Sequence[str],
    *,
    cwd: Path,
    variables: Mapping[str, str] | None = None,
    seconds: float = LONGEST_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """What uv answers, run in `cwd` with our environment, what `uv_sees`, and `variables`. UvMissing.

    One that isn't done after `seconds` is ended and answers with TIMED_OUT, so that callers have one way to fail.
    """
    env = _variables(os.environ) | dict(_beside.get()) | dict(variables or {})
    command = [uv_program(), *arguments]
    try:
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        why = (
            f"error: uv {arguments[0]} didn't end within {seconds:g} s: does the package index, or a git host, answer?"
        )
        return subprocess.CompletedProcess(command, TIMED_OUT, "", why)


def decisive_line(text: str) -> str:
    """The sentence of uv's answer that says why, on one line. For a person; nothing is decided by it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if said := _build_failure(text):
        return said[:600]
    for mark in ("╰─▶", "├─▶", "cause:", "error:", "×"):
        for index, line in enumerate(lines):
            if line.startswith(mark):
                rest = [line.removeprefix(mark).strip()]
                for more in lines[index + 1 :]:
                    if more.startswith(("hint:", "help:", "note:", "cause:", "╰", "├", "×", "error:")):
                        break
                    rest.append(more.lstrip("│ "))
                return " ".join(rest)[:600]
    return (lines[-1] if lines else "uv said nothing")[:600]


def _build_failure(text: str) -> str:
    """What a package's build backend died of, with the package; empty where it's another failure.

    uv quotes the backend's output, indented; its last line is what a traceback ends with.
    """
    lines = text.splitlines()
    failed = next((found[1] for line in lines if (found := _FAILED.search(line))), "")
    quoted = [index for index, line in enumerate(lines) if line.strip() in ("[stdout]", "[stderr]")]
    if not failed or not quoted:
        return ""
    block = itertools.takewhile(lambda line: not line.strip() or line[0].isspace(), lines[quoted[-1] + 1 :])
    last = [line.strip() for line in block if line.strip()][-1:]
    return ": ".join([failed, *last])


def uv_program() -> str:
    """Where uv is. UvMissing."""
    with contextlib.suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return find_uv_bin()
    if found := shutil.which("uv"):
        return found
    raise UvMissing()


def _variables(given: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, so that their index and proxy settings hold, without what belongs to our own Python."""
    kept = {name: value for name, value in given.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}}
    # An archive has no .git, so packages that take their version from it are told one.
    told = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PDM_BUILD_SCM_VERSION", "POETRY_DYNAMIC_VERSIONING_BYPASS")
    return {**dict.fromkeys((*told, "UV_DYNAMIC_VERSIONING_BYPASS"), "0.0.0"), **kept, "NO_COLOR": "1"}
