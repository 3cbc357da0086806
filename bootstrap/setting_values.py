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
from types import TracebackType
from typing import Self

from bootstrap.environment import JobEnvironment
from bootstrap.private_files import folder_below, open_new, open_to_read
from fleet.errors import FleetError
from fleet.evals.settings import FOLDER, VALUES_ENDING
from fleet.file_lock import lock, locked

USERS = ".values-users"
"""Ending of the file that is locked, shared, by everybody who needs the values."""
TURN = ".values-turn"
"""Ending of the file that is locked by one at a time, while it looks at who else needs them and puts or removes files.

Both lie beside the job environment's folder: the folder itself may be the jobs' user's own, whose code could put a link or a pipe
in their place, or lock them for ever.
"""
TURN_SECONDS = 60.0
"""A turn takes milliseconds."""


class SettingInUse(FleetError):
    """Another run on this machine uses other values for the same setting of the same job environment."""

    setting: str

    def message(self) -> str:
        """One line: which setting, and what helps."""
        return f"another run on this machine uses other values of the setting {self.setting}: wait until it has ended"


class SettingsFolderGone(FleetError):
    """Where the values are to lie, there is no folder: code that ran in the job environment put something else there."""

    folder: str
    why: str

    def message(self) -> str:
        """One line: which folder, and what helps."""
        return (
            f"values of settings can't be put into {self.folder}, which is no folder any more ({self.why}): remove the job "
            "environment around it, which is then built anew"
        )


class PlacedValues:
    """The files of one user of a job environment. A block: when it is left, they are gone, unless another user has them too.

    FileLocked, of whatever is done: somebody else doesn't end their turn.
    """

    def __init__(self, environment: JobEnvironment, user: str | None = None) -> None:
        """`user`: whose the files are to be, by name; None: this process's."""
        self._place = environment.working_folder / FOLDER
        # Step by step from a folder that only we can replace: what follows is the user's own.
        self._root, self._way = environment.folder, self._place.relative_to(environment.folder).parts
        self._users_file = environment.folder.with_suffix(USERS)
        self._turn_file = environment.folder.with_suffix(TURN)
        self._user = user
        self._files = {self._file(setting.name) for setting in environment.spec.settings}
        self._users = -1
        """Open file that holds the lock USERS."""

    def __enter__(self) -> Self:
        with self._turn():
            self._users = os.open(self._users_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            lock(self._users, self._users_file, seconds=TURN_SECONDS, shared=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._turn():
            if self._alone(self._users):
                # No folder is no file: who put a link in its place has them, and had them before.
                with contextlib.suppress(OSError), folder_below(self._root, *self._way) as folder:
                    for name in self._files:  # those of users who left before as well
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=folder)
            os.close(self._users)
        self._users = -1

    def put(self, setting: str, text: str) -> None:
        """Put a setting's values in place, for nobody but their owner to read. SettingInUse, SettingsFolderGone."""
        name = self._file(setting)
        with self._turn(), contextlib.ExitStack() as opened:
            try:
                folder = opened.enter_context(folder_below(self._root, *self._way, make=True))
            except OSError as error:
                raise SettingsFolderGone(folder=str(self._place), why=error.strerror or str(error)) from error
            if differs(folder, name, text) and not self._alone(self._users):
                raise SettingInUse(setting=setting)
            self._files.add(name)
            new = f".{name}.new"
            with open_new(new, self._user, folder=folder) as file:
                file.write(text.encode())
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)

    @staticmethod
    def _file(setting: str) -> str:
        return f"{setting}{VALUES_ENDING}"

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        return locked(self._turn_file, seconds=TURN_SECONDS)

    def _alone(self, users: int) -> bool:
        """Whether nobody else needs the values. Asked in one's turn: a lock is let go of for a moment while it is changed."""
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            lock(users, self._users_file, seconds=TURN_SECONDS, shared=True)
        return True


def differs(folder: int, name: str, text: str) -> bool:
    """Whether something else than `text` lies at `name` in an open folder. A link or a pipe is something else, and isn't read."""
    try:
        file = open_to_read(name, folder=folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    with file:
        return file.read() != text.encode()


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
