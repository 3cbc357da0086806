"""Files for their owner alone, from their first moment, at their own place: where a link lies instead, it is never followed.

They hold values of secrets, or what a user's code printed. Root makes them also in folders in which that code writes, and reads
what it wrote: what a name stands for may change at any moment, so that only what was opened is looked at.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

MODE = 0o600
_HERE = os.O_NOFOLLOW | os.O_CLOEXEC


def open_new(path: Path | str, user: str | None = None, *, folder: int | None = None) -> BinaryIO:
    """A new file to write to, in place of what lies there; `user`'s own if one is named. `folder` is the descriptor of one that
    `path` is relative to. FileExistsError: somebody puts things there at this very moment.
    """
    with suppress(FileNotFoundError):
        os.unlink(path, dir_fd=folder)
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _HERE, MODE, dir_fd=folder), "wb")
    give_open(file.fileno(), user)
    return file


def open_to_append(path: Path, user: str | None = None) -> BinaryIO:
    """A file to append to, made if it isn't there, in a folder of our own. OSError: a link lies there."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _HERE, MODE), "ab", buffering=0)
    give_open(file.fileno(), user)
    return file


def open_to_read(path: Path | str, *, folder: int | None = None) -> BinaryIO:
    """A file that a user's code may have put there, in a folder that is ours or open as `folder`. OSError: it is no plain file.

    That is a link, a pipe, a folder; and a file with a second name, which may be somebody else's.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _HERE, dir_fd=folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file of its own", str(path))
    return os.fdopen(descriptor, "rb")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    with open_new(path) as file:
        file.write(text.encode())


@contextmanager
def folder_below(root: Path, *names: str, make: bool = False) -> Iterator[int]:
    """The descriptor of the folder `root/<names>…`: of the very one, since no link below `root` is followed. `make`: the last one,
    where it isn't there. OSError: there is none, or a link lies in its place.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | _HERE
    opened = [os.open(root, flags)]
    try:
        for name in names:
            if make and name == names[-1]:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=opened[-1])
            opened.append(os.open(name, flags, dir_fd=opened[-1]))
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder that jobs' code wrote in, as far as can be: the rest goes with the instance."""
    # Older versions of Python call it again for each level, and a user's code may make thousands.
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


def give_open(descriptor: int, user: str | None) -> None:
    """Make an open file or folder `user`'s own."""
    if user is not None:
        entry = pwd.getpwnam(user)
        os.fchown(descriptor, entry.pw_uid, entry.pw_gid)
