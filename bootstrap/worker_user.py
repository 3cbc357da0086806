"""The user that runs jobs, where it isn't root: what they are given on this host, and whether they can work with it.

    prepare     before anything is installed: who they are, uv, Docker and the login to its registry, the one command of root's
    hand_over   when the code is there: the folders in which jobs write

What root and other environments share with them stays root's: of hard-linked files (uv's way to share packages) they get the
folder and not the file, which they may replace and not change.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bootstrap.commands import Commands, Said, run_command
from bootstrap.host import HostUnfit
from bootstrap.job_process import give
from bootstrap.private_files import give_open, write_private
from bootstrap.uv import uv_program

ROOT = "root"
SUDOERS = Path("/etc/sudoers.d")
RULE = "inspect-fleet-worker"
"""File name of the rule; sudo passes over names with a dot."""
ENGINE_SOCKET = "/var/run/docker.sock"
SAFE_NAME = re.compile(r"[a-z_][a-z0-9_-]*\$?")
"""User names as useradd takes them, which need no quoting in a rule of sudo's."""


class WorkerUserUnfit(HostUnfit):
    """`worker_user` names somebody who can't run jobs here."""

    user: str
    why: str
    remedy: str

    def message(self) -> str:
        """One line: the field, who, why, what to do."""
        return f"worker_user {self.user!r} can't run jobs: {self.why}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class UserFacts:
    """What a host says of a user."""

    name: str
    uid: int | None
    """None: there is no such user."""
    home: Path
    home_is_theirs: bool
    own_uid: int
    """Of this process."""


def switches(user: str, own: str) -> bool:
    """Whether jobs run as somebody else than this process, which is `own`. root stands for whoever runs the worker."""
    return user not in (ROOT, own)


def judge(facts: UserFacts) -> None:
    """WorkerUserUnfit: jobs can't run as this user. Pure."""
    image = "Name a user of the worker image (ubuntu), or root"
    if facts.uid is None:
        raise WorkerUserUnfit(user=facts.name, why="the worker image has no such user", remedy=image)
    if not SAFE_NAME.fullmatch(facts.name):
        raise WorkerUserUnfit(user=facts.name, why="the name has signs that a user's name can't have", remedy=image)
    if facts.own_uid != 0:
        remedy = "Start the worker as root, or leave worker_user at root: jobs then run as whoever runs the worker"
        raise WorkerUserUnfit(
            user=facts.name, why="the worker isn't root and can't become somebody else", remedy=remedy
        )
    if not facts.home_is_theirs:
        remedy = f"Give them one in the worker image (useradd --create-home), or choose another user ({image.lower()})"
        raise WorkerUserUnfit(user=facts.name, why=f"{facts.home} is no home folder of their own", remedy=remedy)


def look(user: str) -> UserFacts:
    """What this host says of a user."""
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return UserFacts(user, None, Path("/"), False, os.geteuid())
    home = Path(entry.pw_dir)
    theirs = home.is_dir() and home.stat().st_uid == entry.pw_uid
    return UserFacts(user, entry.pw_uid, home, theirs, os.geteuid())


def own_name() -> str:
    """The user of this process; its number where it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def prepare(
    user: str,
    env: Mapping[str, str],
    *,
    docker: Path | None,
    bin_folder: Path,
    uv: Callable[[], str] = uv_program,
    run: Commands = run_command,
    sudoers: Path = SUDOERS,
) -> Iterator[str]:
    """Give `user` what jobs need, each step told in a line. WorkerUserUnfit.

    `env`: what their processes see. `docker`: the folder of the login, which becomes theirs; None: no job needs Docker.
    `bin_folder` is on their PATH already, in front; `uv` says where ours is.
    """
    facts = look(user)
    judge(facts)
    env = {**env, "HOME": str(facts.home), "USER": user, "LOGNAME": user}
    yield f"jobs run as {user} (uid {facts.uid}, home {facts.home})"
    yield _offer_uv(user, env, bin_folder, uv, run)
    if docker is not None:
        yield from _offer_docker(user, env, docker, run)
    yield allow_shutdown(user, sudoers=sudoers, run=run)


def _offer_uv(user: str, env: Mapping[str, str], folder: Path, uv: Callable[[], str], run: Commands) -> str:
    said = run(["uv", "--version"], env=env, user=user)
    if said.code:  # ours is in a folder that is closed to them, or on nobody's PATH
        folder.mkdir(mode=0o755, exist_ok=True)
        shutil.copy(uv(), folder / "uv")
        (folder / "uv").chmod(0o755)
        said = run(["uv", "--version"], env=env, user=user)
    if said.code:
        raise WorkerUserUnfit(
            user=user, why=f"uv doesn't run for them: {said.why}", remedy="Build the worker image anew"
        )
    return f"{user} has {said.out.strip()}"


def _offer_docker(user: str, env: Mapping[str, str], login: Path, run: Commands) -> Iterator[str]:
    socket = engine_socket(env.get("DOCKER_HOST", ""))
    if socket and (group := group_to_join(user, socket)):
        said = run(["usermod", "--append", "--groups", group, user])
        if said.code:
            remedy = "Put them into that group in the worker image"
            raise WorkerUserUnfit(user=user, why=f"not let into the group {group}: {said.why}", remedy=remedy)
        yield f"{user} is in the group {group} now"
    text = (login / "config.json").read_text()
    write_private(login / "config.json", text)
    give(login / "config.json", user)
    give(login, user)  # last: from here on it is theirs to put things into
    reached = run(["docker", "info", "--format", "{{.ServerVersion}}"], env=env, user=user)
    if reached.code or not reached.out.strip():
        raise WorkerUserUnfit(user=user, why=_unreached(reached), remedy=_who_may(user, socket))
    yield f"{user} reaches Docker {reached.out.strip()}, with a login file of their own"


def _unreached(said: Said) -> str:
    return f"Docker's engine doesn't answer them: {said.why}"


def _who_may(user: str, socket: Path | None) -> str:
    if socket is None:
        return "Docker's address must be one that every user of the instance may reach"
    return (
        f"The engine's socket {socket} must belong to a group that {user} can be put into (docker, as the image has it)"
    )


def engine_socket(address: str) -> Path | None:
    """The socket of Docker's engine by DOCKER_HOST; None: it isn't reached by a socket."""
    if not address:
        return Path(ENGINE_SOCKET)
    parts = urlsplit(address)
    return Path(parts.path) if parts.scheme == "unix" else None


def group_to_join(user: str, socket: Path) -> str | None:
    """The group that owns the engine's socket, unless `user` is in it or it is root's own, which nobody is put into."""
    try:
        group = grp.getgrgid(socket.stat().st_gid)
    except (OSError, KeyError):
        return None
    mine = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    return None if group.gr_gid == 0 or group.gr_gid in mine else group.gr_name


def allow_shutdown(user: str, *, sudoers: Path = SUDOERS, run: Commands = run_command) -> str:
    """Let `user` power the machine off, and nothing else, where there is sudo; what came of it. WorkerUserUnfit."""
    if shutil.which("sudo") is None or not sudoers.is_dir():
        return "no sudo here: no rule for it"
    path = sudoers / RULE
    part = sudoers / f".{RULE}.part"  # with a dot: sudo doesn't read it
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o440), "w") as file:
        file.write(shutdown_rule(user))
    said = run(["visudo", "--check", "--quiet", f"--file={part}"])
    if said.code:  # a rule that sudo can't read ends sudo for everybody
        part.unlink()
        raise WorkerUserUnfit(
            user=user, why=f"sudo refuses the rule for them: {said.why}", remedy="Choose another user"
        )
    part.replace(path)
    return f"{user} may run shutdown by sudo, and nothing else"


def shutdown_rule(user: str) -> str:
    """The one rule, as sudo reads it."""
    return f"{user} ALL=(root) NOPASSWD: /usr/sbin/shutdown, /sbin/shutdown\n"


def withdraw(*, sudoers: Path = SUDOERS) -> None:
    """Take the rule back: a machine that outlives the worker has nothing of it."""
    (sudoers / RULE).unlink(missing_ok=True)


def hand_over(folder: Path, user: str) -> int:
    """Make everything in `folder` the user's own but for files that others share by hard link; how many things that were."""
    entry = pwd.getpwnam(user)
    count = 0
    # By descriptors: what is theirs already may be exchanged for a link while we walk.
    for _, _, files, here in os.fwalk(folder):
        for name in files:
            if os.stat(name, dir_fd=here, follow_symlinks=False).st_nlink == 1:
                os.chown(name, entry.pw_uid, entry.pw_gid, dir_fd=here, follow_symlinks=False)
                count += 1
        give_open(here, user)
        count += 1
    return count


def check_reach(user: str, python: Path, env: Mapping[str, str], *, run: Commands = run_command) -> None:
    """WorkerUserUnfit: the user can't start the Python of the job environment, which lies where they may not go."""
    said = run([str(python), "-c", "pass"], env=env, user=user)
    if said.code:
        raise WorkerUserUnfit(
            user=user,
            why=f"the job environment can't be used: {said.why}",
            remedy=f"Set FLEET_CACHE_DIR to a folder that they may enter ({python} is in none)",
        )
