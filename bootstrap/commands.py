"""Commands that a host step runs: what they said, however they ended. The one place here that starts them, so that tests can.

A program that isn't there and one that doesn't answer in time are answers as well, told as a shell tells them.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bootstrap.job_process import identity
from fleet.aws.commands import fleet_command

NOT_THERE = 127
TOO_LATE = 124
"""Exit codes of a shell for a program that isn't installed, and of `timeout`."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def why(self) -> str:
        """Its last line, which is where programs say why; for a person, nothing is decided by it."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1][:600] if lines else f"exit code {self.code}"


def image_build(*flags: str, environ: Mapping[str, str] = os.environ, machine: str | None = None) -> str:
    """The command that builds a worker image for instances such as this one: of its region and its processor's kind."""
    arm = (machine or platform.machine()) in ("aarch64", "arm64")
    words = ["image", "build", *(["--architecture", "arm64"] if arm else []), *flags]
    region = environ.get("FLEET_REGION", "")
    return fleet_command(region, *words) if region else shlex.join(["fleet", *words])


class Commands(Protocol):
    """Runs a command to its end."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        given: str | None = None,
        user: str | None = None,
        seconds: float = 60,
    ) -> Said:
        """`env` is the whole environment (ours, if none); `given` its standard input; `user` runs it with all their groups."""
        ...


def run_command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    given: str | None = None,
    user: str | None = None,
    seconds: float = 60,
) -> Said:
    """See `Commands`."""
    try:
        done = subprocess.run(
            list(argv),
            env=None if env is None else dict(env),
            input=given or "",  # a program that asks gets an end of file, and no terminal of ours
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            cwd="/",
            check=False,
            **identity(user),  # type: ignore[call-overload]
        )
    except FileNotFoundError:
        return Said(NOT_THERE, err=f"the command {argv[0]} is not installed")
    except OSError as error:  # no right to, or no memory or process to be had: then most of all it is asked for
        return Said(126, err=f"{argv[0]} can't be run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Said(TOO_LATE, err=f"no answer from {argv[0]} within {seconds:g} seconds")
    return Said(done.returncode, done.stdout, done.stderr)
