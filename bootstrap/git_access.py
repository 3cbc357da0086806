"""How git reaches GitHub from an instance: for uv, which fetches requirements by it, and for jobs.

All of it is configuration in the environment of the processes that need it (GIT_CONFIG_COUNT and its fellows), beside whatever
configuration the machine has: no home folder is written to, no URL rewritten, and the token is on no disk. git asks a helper for
it, and only for https://github.com; the helper takes it from its own environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bootstrap.github_keys import HOST, known_hosts

TOKEN = "GH_TOKEN"  # noqa: S105 - the variable's name
HELPER = f'!f() {{ [ "$1" != get ] || printf "username=x-access-token\\npassword=%s\\n" "${TOKEN}"; }}; f'
SYSTEM_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
"""OpenSSH's own value of GlobalKnownHostsFile."""
COUNT = "GIT_CONFIG_COUNT"


def write_known_hosts(folder: Path) -> Path:
    """GitHub's host keys as a file in `folder` that every user may read."""
    path = folder / "github_known_hosts"
    path.write_text(known_hosts())
    path.chmod(0o644)
    return path


def git_variables(environ: Mapping[str, str], hosts: Path, *, token: bool) -> dict[str, str]:
    """Variables that give git its way to GitHub, beside those of `environ`. `token`: GH_TOKEN will be among them.

    GIT_SSH_COMMAND, where the machine sets it, goes before our host keys: git's own order.
    """
    added = [("core.sshCommand", f'ssh -o BatchMode=yes -o "GlobalKnownHostsFile={hosts} {SYSTEM_HOSTS}"')]
    if token:
        key = f"credential.https://{HOST}.helper"
        # The empty one drops helpers that were named before: one that stores what it is told would put the token on a disk.
        added += [(key, ""), (key, HELPER)]
    first = _count(environ)
    variables = {COUNT: str(first + len(added))}
    for number, (name, value) in enumerate(added, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    # Nobody is there to answer: a repository that asks for a password fails, in words, instead of waiting.
    return {"GIT_TERMINAL_PROMPT": environ.get("GIT_TERMINAL_PROMPT", "0"), **variables}


def _count(environ: Mapping[str, str]) -> int:
    told = environ.get(COUNT, "")
    return int(told) if told.isdigit() else 0
