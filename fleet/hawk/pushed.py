"""A checkout as its remote has it: a runner that sees no file of this machine installs it from there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from fleet.evals.source import GitFailed, Listing, SourceUnreadable, git_variables, is_installable, list_files, run_git
from fleet.hawk.requirements import few, has_credentials

ENTRY_POINTS = "inspect_ai"
"""Group of the entry points by which Inspect finds the tasks, solvers and models of a package."""

_SCP = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>[^@/:]{2,}):(?P<path>[^/].*|/.*)")
"""`git@host:path`, as git understands it; a host of one letter is a drive."""


@dataclass(frozen=True, slots=True)
class PushedSource:
    """A commit of a checkout, clean and on a remote."""

    url: str
    """What is installed: `git+https://<host>/<path>@<commit>`, with `#subdirectory=<folder>` where the source is a folder of it."""
    name: str
    """Of its distribution; empty: only its build knows."""
    provides: frozenset[str] | None
    """With what its tasks' registry names begin: its entry points in the group `inspect_ai`. None: only its build knows."""
    untracked: tuple[str, ...]
    """Files that stay behind though git doesn't ignore them; sorted."""


@dataclass(frozen=True, slots=True)
class NotPushed:
    """A source that a runner can't install."""

    problems: tuple[str, ...]
    """Why, each with what to do."""


def pushed_source(path: Path) -> PushedSource | NotPushed:
    """The checkout (or the folder of one) at `path`, as far as this machine knows: no remote is asked."""
    try:
        return _pushed(list_files(path))
    except (SourceUnreadable, GitFailed) as error:
        return NotPushed((f"the source {path} can't be sent: {error.why}",))


def _pushed(listing: Listing) -> PushedSource | NotPushed:
    root, asked = listing.root, listing.asked
    problems = []
    if not is_installable(root, listing.names):
        problems.append(
            f"the source {asked} is no package, and Hawk installs packages only: give it a pyproject.toml with a [project]"
        )
    commit = _git(
        root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", why="it has no commit yet: commit and push it"
    )
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".").splitlines()
    if changed:
        problems.append(
            f"the source {asked} has changes that aren't committed, and Hawk installs what is pushed: commit and push them "
            f"({few([line[2:].strip() for line in changed])})"
        )
    address, why = _address(root, commit)
    if why:
        problems.append(f"the source {asked} {why}")
    if problems:
        return NotPushed(tuple(problems))
    top = Path(_git(root, "rev-parse", "--show-toplevel")).resolve()
    folder = root.relative_to(top).as_posix()
    url = f"git+{address}@{commit}" + (f"#subdirectory={quote(folder)}" if folder != "." else "")
    name, provides = _described(root, listing.names)
    return PushedSource(url=url, name=name, provides=provides, untracked=tuple(listing.untracked))


def _address(root: Path, commit: str) -> tuple[str, str]:
    """Where a runner gets the commit, or why it can't, as the end of a sentence about the source."""
    remotes = _git(root, "remote").splitlines()
    if not remotes:
        return "", "has no remote, and Hawk installs what is pushed: push it to one"
    held = _git(root, "for-each-ref", "--contains", commit, "--format=%(refname)", "refs/remotes").splitlines()
    having = [name for name in remotes if any(ref.startswith(f"refs/remotes/{name}/") for ref in held)]
    if not having:
        return "", f"is at a commit that no remote has, as far as is known here ({commit[:12]}): push it"
    answers = [installable_address(_git(root, "remote", "get-url", name), name) for name in sorted(having, key=_first)]
    return next((one for one in answers if not one[1]), answers[0])


def _first(remote: str) -> tuple[bool, str]:
    return remote != "origin", remote


def installable_address(url: str, remote: str) -> tuple[str, str]:
    """The address by which anybody reaches a remote with this URL, or why there is none, as the end of a sentence.

    Hawk's runners log in to git hosts by https, so that an address for ssh becomes one for https.
    """
    if has_credentials(url):
        why = f"has credentials in the address of its remote {remote}, which would be stored with the eval set"
        return "", f"{why}: take them out (git remote set-url {remote} …)"
    if "://" in url:
        parts = urlsplit(url)
        if parts.scheme in ("https", "http"):
            return url, ""
        if parts.scheme in ("ssh", "git+ssh") and not parts.port and parts.hostname:
            return f"https://{parts.hostname}{parts.path}", ""
    elif found := _SCP.fullmatch(url):
        return f"https://{found['host']}/{found['path'].lstrip('/')}", ""
    return "", f"has a remote that Hawk's runner can't reach ({url}): push it to one with an https address"


def _described(root: Path, names: Sequence[str]) -> tuple[str, frozenset[str] | None]:
    """The distribution's name and its entry points for Inspect, as far as its pyproject.toml says them."""
    if "setup.py" in names:  # which may say anything
        return "", None
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    points = project.get("entry-points", {}).get(ENTRY_POINTS, {})
    known = project and "entry-points" not in project.get("dynamic", ())
    return str(project.get("name", "")), frozenset(points) if known else None


def _git(root: Path, *arguments: str, why: str = "") -> str:
    """git's answer about the checkout. GitFailed: it has none; `why` says what that means where git says nothing."""
    try:
        return run_git(["-C", str(root), *arguments], git_variables()).decode(errors="replace").strip("\n")
    except GitFailed as failed:
        raise (GitFailed(why=why) if why else failed) from failed
