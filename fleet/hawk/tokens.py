"""Where the token comes from that Hawk is asked with. It expires after hours, so that whoever asks may ask for it again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping

from fleet.hawk.api import HawkLoginMissing

TokenSource = Callable[[], str]
"""A token that is good now, as far as its source knows. HawkLoginMissing."""

COMMAND = ("hawk", "auth", "access-token")
"""Renews an expired login where it can, and never asks a person anything."""
COMMAND_S = 60.0


def token_source(address: str, token: str = "", environ: Mapping[str, str] | None = None) -> TokenSource:
    """The source for the deployment at `address`: `token` itself, else $HAWK_ACCESS_TOKEN, else Hawk's command."""

    def source() -> str:
        variables = os.environ if environ is None else environ
        return token or variables.get("HAWK_ACCESS_TOKEN", "").strip() or _by_command(address, variables)

    return source


def _by_command(address: str, variables: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            COMMAND,
            env={**variables, "HAWK_API_URL": address},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
    except FileNotFoundError as error:
        raise HawkLoginMissing(address=address, why="there is no command `hawk` to ask for one") from error
    except OSError as error:
        why = f"the command `hawk` can't be started ({error.strerror})"
        raise HawkLoginMissing(address=address, why=why) from error
    except subprocess.TimeoutExpired as error:
        why = f"`{' '.join(COMMAND)}` didn't end within {COMMAND_S:g} s"
        raise HawkLoginMissing(address=address, why=why) from error
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if done.returncode:
        why = f"`{' '.join(COMMAND)}` says: {said[-1].removeprefix('Error: ') if said else f'exit code {done.returncode}'}"
        raise HawkLoginMissing(address=address, why=why.rstrip("."))
    printed = done.stdout.split()
    if not printed:
        raise HawkLoginMissing(address=address, why=f"`{' '.join(COMMAND)}` printed none")
    return printed[-1]
