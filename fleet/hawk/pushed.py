"""A checkout as its remote has it: what a runner that sees no file of this machine can install."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PushedSource:
    """A commit of a checkout, clean and on a remote."""

    url: str
    """What pip installs: `git+https://<host>/<path>@<commit>`, with `#subdirectory=<folder>` where the source is a folder of it."""
    name: str
    """Of the distribution that it makes."""
    groups: dict[str, str]
    """Modules by the name of their entry point in the group `inspect_ai`: by that name a task's registry name begins."""
    untracked: tuple[str, ...]
    """Files that stay behind though git doesn't ignore them; sorted."""
