"""What an instance must offer before jobs with containers run on it: enough inotify instances, and a Docker engine whose
address pool holds as many networks as a fleet worker needs.

The engine itself is asked for its pool. Its answer covers both ways to set it, the file and the flags it was started
with, and holds for an engine that is not on this machine's disk; the file is read only where the engine doesn't say.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.errors import FleetError

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_INSTANCES = 8192
"""Per user, and shared by all its containers; the kernel's 128 is used up by a few programs that watch files."""
DAEMON_FILE = Path("/etc/docker/daemon.json")
POOL_BASE = "10.224.0.0/11"
POOL_SIZE = 24
"""8,192 networks of 254 addresses, clear of the default VPC's 172.31.0.0/16. Docker's own pool holds about thirty."""
ENGINE_AT_LEAST = (24, 0, 6)
COMPOSE_AT_LEAST = (2, 21, 0)
"""Both as Inspect's Docker sandbox wants them."""
ANSWER_SECONDS = 30

_POOL = json.dumps({"default-address-pools": [{"base": POOL_BASE, "size": POOL_SIZE}]})


class HostUnfit(FleetError):
    """This instance can't run the jobs; raised before it takes one."""


class HostFailed(FleetError):
    """This instance can run jobs no more; those that it had are back on the queue."""

    why: str
    minutes: float
    done: str
    """What was done here before."""
    advice: str

    def message(self) -> str:
        """One line: what was wrong for how long, what became of the jobs, what helps."""
        return (
            f"this host can't go on: {self.why}, and so for {self.minutes:g} minutes. What it had in flight is back on the "
            f"queue; before: {self.done}. {self.advice}"
        )


class DockerUnreachable(HostUnfit):
    """No engine answers."""

    why: str

    def message(self) -> str:
        """One line: what Docker's client said, what to look at."""
        return (
            f"Docker doesn't answer ({self.why}). Start the engine (`systemctl status docker`), or set DOCKER_HOST; a "
            "worker image that `fleet image build` made has it running"
        )


class DockerTooOld(HostUnfit):
    """Inspect's sandbox wants a newer one."""

    what: str
    found: str
    wanted: str

    def message(self) -> str:
        """One line: what, found, wanted."""
        return (
            f"Docker's {self.what} is {self.found}; Inspect's sandbox needs {self.wanted} or newer. "
            "Upgrade it, or build the worker image anew"
        )


class AddressPoolWrong(HostUnfit):
    """The engine would run out of networks."""

    found: str
    source: str

    def message(self) -> str:
        """One line: found where, wanted, how to set it."""
        return (
            f"Docker's default address pool is {self.found} ({self.source}), which runs out of networks when many jobs "
            f"run. Put {_POOL} into {DAEMON_FILE} and restart Docker, or use a worker image that `fleet image build` made"
        )


@dataclass(frozen=True, slots=True)
class DockerFacts:
    """What the engine, its compose plugin and the file say."""

    engine: str
    """The server's version."""
    compose: str
    """The plugin's version; empty: there is none."""
    pools: list[tuple[str, int]] | None
    """(base, size) by the engine; None: it doesn't say, which engines do that have none set."""
    file_pools: list[tuple[str, int]] | None = field(default=None)
    """The same by the file; None: no file, or nothing about it in the file."""


def judge(facts: DockerFacts) -> None:
    """Raise what makes this Docker unfit (DockerTooOld, AddressPoolWrong); pure."""
    if version(facts.engine) < ENGINE_AT_LEAST:
        raise DockerTooOld(what="engine", found=facts.engine or "unknown", wanted=_dotted(ENGINE_AT_LEAST))
    if version(facts.compose) < COMPOSE_AT_LEAST:
        raise DockerTooOld(
            what="compose plugin", found=facts.compose or "not installed", wanted=_dotted(COMPOSE_AT_LEAST)
        )
    by_engine = facts.pools is not None
    pools = facts.pools if by_engine else facts.file_pools
    if pools != [(POOL_BASE, POOL_SIZE)]:
        found = ", ".join(f"{base} in /{size}s" for base, size in pools or []) or "Docker's own"
        source = "by the engine's answer" if by_engine else f"the engine names none, nor does {DAEMON_FILE}"
        raise AddressPoolWrong(found=found, source=source if by_engine or not pools else f"by {DAEMON_FILE}")


def version(text: str) -> tuple[int, ...]:
    """The first three numbers of a version (`v2.26.1-1` is 2.26.1); () where there are none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def check_docker(*, run: Callable[[list[str]], str] | None = None, daemon_file: Path = DAEMON_FILE) -> DockerFacts:
    """What Docker says, once it is found fit. A HostUnfit says what isn't and what helps."""
    run = run or _docker
    info = _json(run(["info", "--format", "{{json .}}"]))
    if not info.get("ServerVersion"):
        # The client ends with 0 for some failures, and names them here.
        errors = info.get("ServerErrors")
        said = "; ".join(str(error) for error in errors) if isinstance(errors, list) else ""
        raise DockerUnreachable(why=said or "it gave no version")
    try:
        compose = run(["compose", "version", "--short"]).strip()
    except DockerUnreachable:  # the engine has just answered, so it is the plugin that isn't there
        compose = ""
    facts = DockerFacts(
        engine=str(info["ServerVersion"]),
        compose=compose,
        pools=_pools(info.get("DefaultAddressPools"), "Base", "Size"),
        file_pools=_pools(_read(daemon_file).get("default-address-pools"), "base", "size"),
    )
    judge(facts)
    return facts


def raise_inotify_limit(path: Path = INOTIFY) -> str:
    """Raise the limit where it is too low and may be raised; what came of it, for the log."""
    try:
        now = int(path.read_text())
        if now >= INOTIFY_INSTANCES:
            return f"inotify instances: {now}, enough"
        path.write_text(f"{INOTIFY_INSTANCES}\n")
        return f"inotify instances: raised from {now} to {int(path.read_text())}"
    except (OSError, ValueError) as error:
        return (
            f"inotify instances: not raised ({error}). Containers that watch files may fail; as root: "
            f"sysctl -w fs.inotify.max_user_instances={INOTIFY_INSTANCES}"
        )


def prepare_docker_host() -> Iterator[str]:
    """The steps of a host for containers, each told in a line when done. HostUnfit: the instance can't take jobs."""
    yield raise_inotify_limit()
    facts = check_docker()
    yield f"Docker {facts.engine} with compose {facts.compose} answers; networks from {POOL_BASE} in /{POOL_SIZE}s"


def _docker(arguments: list[str]) -> str:
    try:
        return subprocess.run(
            ["docker", *arguments], check=True, capture_output=True, text=True, timeout=ANSWER_SECONDS
        ).stdout
    except FileNotFoundError as error:
        raise DockerUnreachable(why="the command docker is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise DockerUnreachable(why=f"no answer within {ANSWER_SECONDS} seconds") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise DockerUnreachable(why=said[-1] if said else f"exit code {error.returncode}") from error


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        return _json(path.read_text())
    except OSError:
        return {}


def _pools(raw: object, base: str, size: str) -> list[tuple[str, int]] | None:
    """Pools as the engine or the file lists them; None where there are none."""
    if not isinstance(raw, list) or not raw:
        return None
    return [(str(pool.get(base)), _number(pool.get(size))) for pool in raw if isinstance(pool, dict)]


def _number(raw: object) -> int:
    return int(raw) if isinstance(raw, int) or (isinstance(raw, str) and raw.isdecimal()) else 0


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)
