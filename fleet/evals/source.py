"""A checkout packed for the way: the files that git tracks, as they lie in the working tree now.

Equal trees make equal bytes, so the archive's SHA-256 is the source's identity. Uncommitted changes travel, deleted files
don't, and what git doesn't track stays behind and is named: a person decides by `git add` what a run consists of.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fleet.errors import FleetError, RequestRefused

LARGEST = 4 * 2**30
"""Bytes of all files together. One put to S3 takes 5 GB, and every instance fetches it: data lie better in a bucket."""

GIT_S = 1_800.0
"""Seconds of one git command: to pack the largest source takes minutes."""

_SUBMODULE = "160000"


class SourceUnreadable(RequestRefused):
    """The request's source isn't a checkout that can be packed."""

    source: str
    why: str

    def message(self) -> str:
        """Which folder, and what is wrong with it."""
        return f"source {self.source} can't be packed: {self.why}"


class GitFailed(FleetError):
    """A git command gave no answer; whoever asked names the checkout."""

    why: str

    def message(self) -> str:
        """Why, as the end of a sentence."""
        return self.why


class GitRefused(GitFailed):
    """Git says no, in its own words."""


@dataclass(frozen=True, slots=True)
class SourceArchive:
    """A packed checkout, or a packed folder of one."""

    path: Path
    """A .tar.gz, named by its digest."""
    sha256: str
    untracked: list[str]
    """What stays behind though git doesn't ignore it, and links that lead out of the folder; sorted."""
    installable: bool
    """It has a setup.py, or a pyproject.toml that describes a package."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a checkout that travel."""

    asked: Path
    """As the person named it."""
    root: Path
    names: list[str]
    """Relative to the root, sorted."""
    untracked: list[str]
    """As in `SourceArchive`."""


def pack(path: Path, folder: Path) -> SourceArchive:
    """Pack the checkout at `path` (or the folder of one) into `folder`. SourceUnreadable: it can't be."""
    return pack_listing(list_files(path), folder)


def list_files(path: Path) -> Listing:
    """What of the checkout at `path` travels. SourceUnreadable: it isn't one, or has nothing that git tracks."""
    root = path.expanduser()
    if not root.is_dir():
        why = "it is a file, not a folder" if root.exists() else "there is no such folder"
        raise SourceUnreadable(source=str(path), why=why)
    root = root.resolve()
    untracked = set(_listed(root, path, "--others", "--exclude-standard"))
    names: list[str] = []
    size = 0
    for name in sorted(set(_tracked(root, path))):
        file = root / name
        if file.is_symlink() and _leads_out(root, file):
            untracked.add(name)
        elif file.is_symlink() or file.is_file():  # a deleted file is still in git's index
            names.append(name)
            size += file.lstat().st_size
    if not names:
        raise SourceUnreadable(source=str(path), why="git tracks no file in it (git add what the run needs)")
    if size > LARGEST:
        many = f"its tracked files have {size / 2**30:.1f} GiB, more than {LARGEST / 2**30:.0f}"
        raise SourceUnreadable(source=str(path), why=f"{many}: keep large data elsewhere, such as in a bucket")
    return Listing(asked=path, root=root, names=names, untracked=sorted(untracked))


def pack_listing(listing: Listing, folder: Path) -> SourceArchive:
    """Pack what is listed into `folder`. SourceUnreadable: a file can't be read."""
    try:
        archive, sha256 = write_archive(listing.root, listing.names, folder)
    except OSError as error:
        raise SourceUnreadable(source=str(listing.asked), why=told(error)) from error
    return SourceArchive(
        path=archive,
        sha256=sha256,
        untracked=listing.untracked,
        installable=is_installable(listing.root, listing.names),
    )


def write_archive(root: Path, names: list[str], folder: Path) -> tuple[Path, str]:
    """Pack what lies at `names` below `root` into `folder`; the archive, named by its SHA-256, and the SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
        try:
            _write(root, names, part)
        except OSError:
            Path(part.name).unlink()
            raise
    with Path(part.name).open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Path(part.name).replace(folder / f"{sha256}.tar.gz"), sha256


def _tracked(root: Path, asked: Path) -> Iterator[str]:
    """What git tracks below `root`, files of checked-out submodules included."""
    for entry in _listed(root, asked, "--cached", "--stage"):
        facts, name = entry.split("\t", 1)
        if not facts.startswith(_SUBMODULE):
            yield name
        elif (root / name / ".git").exists():
            for inner in _tracked(root / name, asked):
                yield f"{name}/{inner}"


def _listed(root: Path, asked: Path, *what: str) -> list[str]:
    """The answer of `git ls-files` for the folder `root`, relative to it."""
    try:
        answer = run_git(["-C", str(root), "ls-files", "-z", *what], git_variables())
    except GitFailed as failed:
        raise SourceUnreadable(source=str(asked), why=failed.why) from failed
    return [os.fsdecode(name) for name in answer.split(b"\0") if name]


def told(error: OSError) -> str:
    """What went wrong with which file; one that shrinks while it is packed has neither name nor number."""
    return f"{error.strerror}: {error.filename}" if error.strerror else str(error)


def run_git(arguments: Sequence[str], env: Mapping[str, str], *, told: bytes = b"") -> bytes:
    """What git answers. GitRefused: it says no. GitFailed: it isn't there, or hangs and was ended."""
    try:
        answer = subprocess.run(
            ["git", *arguments], input=told, capture_output=True, check=False, env=dict(env), timeout=GIT_S
        )
    except FileNotFoundError as error:
        raise GitFailed(why="the command git isn't installed") from error
    except subprocess.TimeoutExpired as error:
        why = f"git didn't answer within {GIT_S:g} s: does the checkout's disk, and a partial clone's server, answer?"
        raise GitFailed(why=why) from error
    if answer.returncode:
        said = os.fsdecode(answer.stderr).strip().splitlines()
        raise GitRefused(why=said[0].removeprefix("fatal: ") if said else "git failed")
    return answer.stdout


def git_variables() -> dict[str, str]:
    """Our environment for git: the checkout is the one that is named, whatever hook or worktree we were started from."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return ours | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}


def _leads_out(root: Path, link: Path) -> bool:
    """Whether a symbolic link points anywhere but into the packed folder: it would dangle where it arrives."""
    target = link.readlink()
    return target.is_absolute() or not (link.parent / target).resolve().is_relative_to(root)


def _write(root: Path, names: list[str], to: tempfile._TemporaryFileWrapper[bytes]) -> None:
    """The archive's bytes: nothing in them but names, content, links and whether a file is executable."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=to, mtime=0, compresslevel=6) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            file = root / name
            entry = tarfile.TarInfo(PurePosixPath(name).as_posix())
            if file.is_symlink():
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.fsdecode(file.readlink()), 0o777
                tar.addfile(entry)
                continue
            if file.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
                continue
            with file.open("rb") as content:
                facts = os.fstat(content.fileno())
                entry.size = facts.st_size
                entry.mode = 0o755 if facts.st_mode & 0o100 else 0o644
                tar.addfile(entry, content)


def is_installable(root: Path, names: Sequence[str]) -> bool:
    """Whether what lies at `names` below `root` is a package. SourceUnreadable: its pyproject.toml can't be read."""
    if "setup.py" in names:
        return True
    if "pyproject.toml" not in names:
        return False
    import tomllib

    try:
        described = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SourceUnreadable(source=str(root), why=f"its pyproject.toml is malformed: {error}") from error
    # One that only holds the settings of tools describes no package.
    return "project" in described or "build-system" in described
