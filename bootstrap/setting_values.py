"""The values of settings at their place in a job environment, `.settings/<setting>.env`, for as long as somebody needs them.

On the controller the planner, or the local backend, needs them; on an instance its jobs. A job environment is shared by all
processes that ask for its spec, so whoever leaves last removes the files. A process that is killed leaves them: what it leaves
lies in its user's cache, or on an instance's disk, readable by its owner alone, until the next one comes and goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bootstrap import job_process
from bootstrap.environment import JobEnvironment
from fleet.errors import FleetError
from fleet.evals.settings import FOLDER, VALUES_ENDING

USERS = "values.users"
"""Locked, shared, by everybody who needs the values."""
TURN = "values.turn"
"""Locked by one at a time, while it looks at who else needs them and puts or removes files."""


class SettingInUse(FleetError):
    """Another run on this machine uses other values for the same setting of the same job environment."""

    setting: str

    def message(self) -> str:
        """One line: which setting, and what helps."""
        return f"another run on this machine uses other values of the setting {self.setting}: wait until it has ended"


class PlacedValues:
    """The files of one user of a job environment. A block: when it is left, they are gone, unless another user has them too."""

    def __init__(self, environment: JobEnvironment, user: str | None = None) -> None:
        """`user`: whose the files are to be, by name; None: this process's."""
        self._folder = environment.working_folder / FOLDER
        self._locks = environment.folder
        self._user = user
        self._files = {self._file(setting.name) for setting in environment.spec.settings}
        self._users = -1
        """Open file that holds the lock USERS."""

    def __enter__(self) -> Self:
        with self._turn():
            self._users = os.open(self._locks / USERS, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._users, fcntl.LOCK_SH)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._turn():
            if self._alone(self._users):
                for path in self._files:  # those of users who left before as well
                    path.unlink(missing_ok=True)
            os.close(self._users)
        self._users = -1

    def put(self, setting: str, text: str) -> None:
        """Put a setting's values in place, for nobody but their owner to read. SettingInUse."""
        path = self._file(setting)
        with self._turn():
            if path.exists() and path.read_bytes() != text.encode() and not self._alone(self._users):
                raise SettingInUse(setting=setting)
            self._files.add(path)
            self._write(path, text)

    def _file(self, setting: str) -> Path:
        return self._folder / f"{setting}{VALUES_ENDING}"

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
        job_process.give(new, self._user)
        new.replace(path)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with (self._locks / TURN).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @staticmethod
    def _alone(users: int) -> bool:
        """Whether nobody else needs the values. Asked in one's turn: a lock is let go of for a moment while it is changed."""
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(users, fcntl.LOCK_SH)
        return True


@contextlib.contextmanager
def values_in_place(environment: JobEnvironment, values: Mapping[str, str]) -> Iterator[None]:
    """Have these values, by setting, in a job environment for the length of a block. SettingInUse."""
    if not values:
        yield
        return
    with PlacedValues(environment) as placed:
        for setting, text in values.items():
            placed.put(setting, text)
        yield
