"""The variables that jobs see: this machine's, the run's secrets, and what the host steps add on their way.

Not the project's own ones nor Prefect's, and not the credentials of the registry, with which jobs have nothing to do: they find
its login where DOCKER_CONFIG says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bootstrap.secrets import Secrets
from bootstrap.worker_setup import Taken
from fleet.evals.registry import CREDENTIALS

OURS = ("PREFECT_", "FLEET_")
"""Prefixes of variables that are this project's or Prefect's (an API key among them) and no business of a job."""
ROOTS_CACHE = "UV_CACHE_DIR"
"""A cache that is root's: another user has one of their own, in their home folder."""


class JobVariables:
    """What a job's process sees, as the steps make it. Values are read when it is asked for; it holds no secret itself."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._added: dict[str, str] = {}
        self._front: list[Path] = []
        self._taken = Taken({})

    def add(self, variables: Mapping[str, str]) -> None:
        """Variables that go before the machine's and the secrets."""
        self._added |= variables

    def put_in_front(self, folder: Path) -> None:
        """A folder of programs that go before the machine's."""
        self._front.append(folder)

    def take(self, taken: Taken) -> None:
        """What the worker's setup script left goes before all."""
        self._taken = taken

    def environment(self, environ: Mapping[str, str] = os.environ, *, of_another_user: bool = False) -> dict[str, str]:
        """All of it, on the machine whose variables are `environ`."""
        hidden = (*CREDENTIALS, *((ROOTS_CACHE,) if of_another_user else ()))
        plain = {name: value for name, value in environ.items() if not name.startswith(OURS)}
        seen = {name: value for name, value in {**plain, **self._secrets.environment()}.items() if name not in hidden}
        if self._front:
            path = seen.get("PATH", os.defpath)
            seen["PATH"] = os.pathsep.join([*(str(folder) for folder in self._front), path])
        return self._taken.over({**seen, **self._added})
