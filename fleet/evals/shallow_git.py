"""The commit that is checked out, as a shallow `.git` of its own: what `git log -1`, `git status` or `git diff` need.

It is made of the commit alone, so packing it twice makes the same bytes, whatever else happens in the checkout: nothing of
the checkout's own `.git` is copied. Its configuration, hooks, reflogs and remotes may hold credentials, its other branches
what nobody meant to ship.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import RequestRefused
from fleet.evals.source import GitFailed, GitRefused, git_variables, run_git, told, write_archive

SHALLOW = "shallow"
"""Git's own list of commits whose parents aren't there."""

EXCLUDED = "__pycache__/\n*.egg-info/\n/.venv/\n/uv.lock\n"
"""What arises in a setting's folder where it arrives; a file that the commit has is never excluded by it."""

_CONFIG = "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"
_OBJECT_FORMAT = "[extensions]\n\tobjectformat = {name}\n"


class GitUnreadable(RequestRefused):
    """A folder isn't the whole of a checkout with a commit, or git can't read it."""

    checkout: str
    why: str

    def message(self) -> str:
        """Which folder, and what is wrong with it."""
        return f"the commit of {self.checkout} can't be packed: {self.why}"


@dataclass(frozen=True, slots=True)
class ShallowGit:
    """A packed `.git`, to be unpacked into an empty folder of that name."""

    path: Path
    """A .tar.gz, named by its digest."""
    sha256: str
    """The same for the same commit, with the same version of git."""
    commit: str


def pack_shallow_git(checkout: Path, folder: Path) -> ShallowGit:
    """Pack the commit checked out at `checkout` into `folder`. GitUnreadable."""

    def ask(*arguments: str, why: str = "") -> str:
        return _git(checkout, ["-C", str(checkout), *arguments], git_variables(), why=why).strip()

    top = ask("rev-parse", "--show-toplevel")
    if Path(top).resolve() != checkout.resolve():
        raise GitUnreadable(
            checkout=str(checkout), why=f"it is a folder in the checkout {top}; name the checkout itself"
        )
    commit = ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}", why="it has no commit yet")
    kind = ask("rev-parse", "--show-object-format")
    objects = Path(ask("rev-parse", "--path-format=absolute", "--git-path", "objects"))
    with tempfile.TemporaryDirectory(prefix="inspect-fleet-git-") as scratch:
        made = Path(scratch) / "git"
        try:
            names = _make(checkout, made, commit, kind, objects)
            path, sha256 = write_archive(made, names, folder)
        except OSError as error:
            raise GitUnreadable(checkout=str(checkout), why=told(error)) from error
    return ShallowGit(path=path, sha256=sha256, commit=commit)


def _make(checkout: Path, made: Path, commit: str, kind: str, objects: Path) -> list[str]:
    """Make the `.git` of one commit; what of it travels. Its objects are read from `objects`, the checkout's own."""
    # Neither the person's configuration nor the checkout's: both may change how objects are packed.
    variables = git_variables() | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_DEFAULT_REF_FORMAT": "files",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }

    def git(*arguments: str, told: str = "") -> str:
        return _git(checkout, [f"--git-dir={made}", *arguments], variables, told=told)

    form = [] if kind == "sha1" else [f"--object-format={kind}"]
    _git(checkout, ["init", "--quiet", "--bare", "--template=", *form, str(made)], variables)
    (made / "objects" / "info").mkdir(exist_ok=True)
    (made / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    (made / SHALLOW).write_text(f"{commit}\n")  # before anything looks for the commit's parents
    listed = git("rev-list", "--objects", "--no-walk", commit)
    # No deltas, one thread, nothing taken over as it is packed already: the bytes follow from the list of objects.
    bare = ["--window=0", "--depth=0", "--threads=1", "--no-reuse-delta", "--no-reuse-object", "--compression=6"]
    pack = str(made / "objects" / "pack" / "pack")
    named = git("-c", "pack.writeReverseIndex=false", "pack-objects", "--quiet", *bare, pack, told=listed).strip()
    git("read-tree", commit)
    (made / "HEAD").write_text(f"{commit}\n")
    version = 0 if kind == "sha1" else 1
    config = _CONFIG.format(version=version) + ("" if kind == "sha1" else _OBJECT_FORMAT.format(name=kind))
    (made / "config").write_text(config)
    (made / "info").mkdir(exist_ok=True)
    (made / "info" / "exclude").write_text(EXCLUDED)
    packs = [f"objects/pack/pack-{named}.{end}" for end in ("idx", "pack")]
    # Git takes a folder for a repository only with `refs` in it, and we have none: the commit is checked out by its id.
    return ["HEAD", "config", "index", "info/exclude", *packs, "refs", SHALLOW]


def _git(checkout: Path, arguments: list[str], variables: Mapping[str, str], *, told: str = "", why: str = "") -> str:
    """What git answers. GitUnreadable: `why` where git says no, or what it says."""
    try:
        answer = run_git(arguments, variables, told=os.fsencode(told))
    except GitFailed as failed:
        refused = isinstance(failed, GitRefused)
        raise GitUnreadable(checkout=str(checkout), why=why if why and refused else failed.why) from failed
    return os.fsdecode(answer)
