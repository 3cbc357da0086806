"""Requirements as a runner on Hawk installs them, which sees no file of this machine. Pure; facts: Hawk 3.7.2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NAMED = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\]\s*)?(?P<rest>[@=<>!~;(].*)?", re.DOTALL
)
_LOCAL = ("./", "../", "/", "~", "file:")
_USER = re.compile(r"://(?P<user>[^/?#\s]*)@")
_SCP_PASSWORD = re.compile(r"^(git\+)?[^/@\s]+:[^/@\s]+@")
_SECRET_PARAMETER = re.compile(
    r"[?&#][^=?&#\s]*(token|secret|password|passwd|credentials?|signature|api[-_.]?key|access[-_.]?key([-_.]?id)?)=",
    re.IGNORECASE,
)
_COMMIT = re.compile(r"@[0-9a-f]{40}([#\s;]|$)")


def name_of(requirement: str) -> str:
    """The distribution that a requirement names, as it is written; empty: it doesn't say, as a bare address doesn't."""
    found = _NAMED.fullmatch(requirement.strip())
    return found["name"] if found else ""


def canonical(name: str) -> str:
    """A distribution's name by which names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def has_credentials(address: str) -> bool:
    """Whether an address holds a password or a token, or a user's name that may be one; `git@` isn't."""
    user = _USER.search(address)
    if user and user["user"] != "git":
        return True
    return bool(_SCP_PASSWORD.match(address) or _SECRET_PARAMETER.search(address))


def problems(requirements: Iterable[str]) -> list[str]:
    """What can't be installed on Hawk, each with what to do. One with credentials is named by its place alone."""
    found = []
    for number, text in enumerate(requirements, 1):
        target = text.rsplit("@", 1)[-1].strip()
        if has_credentials(text.rpartition(" @ ")[2].strip()):
            found.append(
                f"requirement {number} of packages has credentials in its address: take them out, Hawk's runner has its own "
                "for git"
            )
        elif target in (".", "..") or target.startswith(_LOCAL):
            found.append(
                f"the requirement {text} is on this machine, which Hawk doesn't see: name a release or git+https://…@<commit>"
            )
    return found


def unpinned(requirements: Iterable[str]) -> list[str]:
    """Requirements of which Hawk may install something else another day."""
    return [text for text in requirements if "===" not in text and "==" not in text and not _COMMIT.search(text)]


def few(names: Sequence[str]) -> str:
    """The first of some names, for a line."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
