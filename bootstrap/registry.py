"""The login to the registry of container images, made once before any job, in a Docker configuration of this worker's own.

The machine's own configuration is taken over but for a store of credentials: what is logged in stays in a file that goes when
the worker ends, and nobody's own login is overwritten. The token reaches `docker` by its standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.commands import Commands, run_command
from bootstrap.host import HostUnfit
from bootstrap.private_files import write_private
from fleet.aws.failures import AwsRefused
from fleet.evals.registry import TOKEN, USERNAME, RegistryAccess, has_login

DOCKER_CONFIG = "DOCKER_CONFIG"
"""Environment variable of Docker's clients: the folder of their configuration."""
SHARED = ("cli-plugins", "contexts")
"""Of the machine's configuration, what is used where it is."""
STORES = ("credsStore",)
"""Settings by which a login would be put elsewhere than into the file."""
WAITS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each further try of a parameter: a role's rights may lag a launch."""


class RegistryLoginFailed(HostUnfit):
    """The registry, or the engine, refused the login."""

    registry: str
    user: str
    why: str

    def message(self) -> str:
        """One line: where, who, Docker's words, what to look at."""
        return (
            f"login to {self.registry} as {self.user} failed: {self.why}. Check {USERNAME} and {TOKEN}, or the parameters that "
            "the Fleet Account block names for them, and that the token is still valid"
        )


class RegistryParameterUnreadable(HostUnfit):
    """A parameter that the account names can't be read by this instance."""

    parameter: str
    why: str

    def message(self) -> str:
        """One line: which one, SSM's words, what to look at."""
        return (
            f"the registry's login needs the parameter {self.parameter}, which can't be read: {self.why}. Does it exist in this "
            "region, and may the instance's role read it (by default, what lies below /inspect-fleet/shared/)?"
        )


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and their token. Shown as nothing."""

    user: str
    token: str

    def __repr__(self) -> str:
        return "Credentials()"


def credentials(
    access: RegistryAccess,
    secrets: Mapping[str, str],
    read: Callable[[str], str],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Credentials | None:
    """User and token, each from the secrets, else from the account's parameter; None: there is no login, and none is needed.

    `read` gives what a parameter holds, or raises AwsRefused.
    RegistryLoginMissing, RegistryLoginIncomplete, RegistryParameterUnreadable.
    """
    if not has_login(access, [name for name, value in secrets.items() if value]):
        return None

    def part(name: str, parameter: str) -> str:
        return secrets.get(name) or _read(parameter, read, sleep)

    return Credentials(part(USERNAME, access.username_parameter).strip(), part(TOKEN, access.token_parameter).strip())


def _read(parameter: str, read: Callable[[str], str], sleep: Callable[[float], None]) -> str:
    for wait in (*WAITS, None):
        try:
            value = read(parameter)
        except AwsRefused as refusal:
            if wait is None:
                why = f"{refusal.code}: {refusal.why}" if refusal.why else refusal.code
                raise RegistryParameterUnreadable(parameter=parameter, why=why) from refusal
            sleep(wait)
        else:
            if not value.strip():
                raise RegistryParameterUnreadable(parameter=parameter, why="it is empty")
            return value
    raise AssertionError("the last try returns or raises")


def log_in(registry: str, who: Credentials, env: Mapping[str, str], *, run: Commands = run_command) -> str:
    """Log in to `registry` (empty: Docker Hub); what came of it, for the log. RegistryLoginFailed."""
    where = [registry] if registry else []
    said = run(["docker", "login", "--username", who.user, "--password-stdin", *where], env=env, given=who.token)
    named = registry or "Docker Hub"
    if said.code:
        why = said.why.replace(who.token, "<token>")
        raise RegistryLoginFailed(registry=named, user=who.user, why=why)
    return f"logged in to {named} as {who.user}"


def own_configuration(folder: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Make `folder` a Docker configuration for this worker, after the machine's own; the folder, open to nobody else."""
    base = Path(environ.get(DOCKER_CONFIG) or Path(environ.get("HOME") or Path.home()) / ".docker")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in SHARED:
        if (base / name).is_dir():
            with contextlib.suppress(FileExistsError):
                (folder / name).symlink_to((base / name).resolve())
    kept = {name: value for name, value in _settings(base / "config.json").items() if name not in STORES}
    write_private(folder / "config.json", json.dumps(kept))
    return folder


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
