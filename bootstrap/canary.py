"""What a new worker image must show before fleets boot from it: `fleet-python -m bootstrap.canary`, on an instance of the image.

Started as every worker's command is, by the user data and `bootstrap.boot`, so that the way to here is tried as well: the code
from S3, the role, the log. The report, a line for each check, goes to FLEET_CANARY_REPORT (s3://…). Exit code 1: a check failed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.host import INOTIFY, INOTIFY_INSTANCES, POOL_BASE, POOL_SIZE, check_docker, raise_inotify_limit
from fleet.aws.images import CONTRACT
from fleet.errors import FleetError

ROOT = "FLEET_ROOT"
"""Environment: where the image's files are, if not at /."""
REPORT = "FLEET_CANARY_REPORT"
RECIPE = "FLEET_CANARY_RECIPE"
"""Environment: the recipe, as JSON, that the image must have been made of."""
IMAGE_FILE = "etc/inspect-fleet/image.json"
LONGEST = 120
"""Seconds that a program may take. The first import on a new volume reads every block from S3."""
CODE = Path(__file__).parents[1]


class Unfit(FleetError):
    """The image doesn't show what it must."""

    why: str

    def message(self) -> str:
        """One line."""
        return self.why


@dataclass(frozen=True, slots=True)
class Check:
    """One thing the image must show, and what it did show."""

    name: str
    passed: bool
    detail: str


def run_checks(checks: Mapping[str, Callable[[], str]]) -> list[Check]:
    """Every check, also after one that failed: a person mends them all at once."""
    done = []
    for name, check in checks.items():
        try:
            done.append(Check(name, True, check()))
        except (FleetError, OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            done.append(Check(name, False, " ".join(str(error).split()) or type(error).__name__))
    return done


def all_checks(environ: Mapping[str, str]) -> dict[str, Callable[[], str]]:
    """The checks by name."""
    root = Path(environ.get(ROOT) or "/")
    return {
        "image": lambda: image_file(root / IMAGE_FILE, json.loads(environ.get(RECIPE) or "{}")),
        "inotify": inotify,
        "docker": docker,
        "gpu": lambda: gpu(root / IMAGE_FILE),
        "git": lambda: said(["git", "--version"]),
        "uv": lambda: said([_uv(), "--version"]),
        "caches": lambda: caches(environ),
        "dependencies": dependencies,
        "code": code,
    }


def image_file(path: Path, recipe: Mapping[str, Any]) -> str:
    """The file in which the image says what it is, held to the contract and to the recipe. Unfit, OSError, ValueError."""
    found = json.loads(path.read_text())
    if found.get("contract") != CONTRACT:
        raise Unfit(why=f"{path} says contract {found.get('contract')!r}, this version needs {CONTRACT}")
    if differ := [name for name, value in recipe.items() if found.get(name) != value]:
        raise Unfit(why=f"{path} isn't of the recipe: {', '.join(differ)} differ, so another build's bundle was baked")
    return f"contract {CONTRACT}, baked {found.get('baked', 'some time')}"


def inotify(path: Path = INOTIFY) -> str:
    """Enough inotify instances. Unfit."""
    told = raise_inotify_limit(path)
    if int(path.read_text()) < INOTIFY_INSTANCES:
        raise Unfit(why=told)
    return told


def docker() -> str:
    """The engine, its compose plugin and its address pool. HostUnfit."""
    facts = check_docker()
    return f"engine {facts.engine}, compose {facts.compose}, networks from {POOL_BASE} in /{POOL_SIZE}s"


def gpu(path: Path) -> str:
    """NVIDIA's software where the recipe has it; whether a container sees a GPU is for instances that have one. Unfit."""
    if not json.loads(path.read_text()).get("gpu"):
        return "not in the recipe"
    return said(["dpkg-query", "--show", "nvidia-container-toolkit"])


def caches(environ: Mapping[str, str]) -> str:
    """Where uv keeps its cache and its Pythons is named. Unfit."""
    names = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR")
    if missing := [name for name in names if not environ.get(name)]:
        raise Unfit(why=f"fleet-python sets no {' and no '.join(missing)}")
    return ", ".join(environ[name] for name in names)


def dependencies() -> str:
    """What is installed is what is locked. Unfit."""
    bake = CODE / "worker_image" / "bake"
    said([sys.executable, str(bake / "locked.py"), str(bake / "requirements.lock")])
    return f"as locked, on Python {sys.version.split()[0]}"


def code() -> str:
    """The shipped code is what is imported, and a worker's flow can be. Unfit."""
    where = said([sys.executable, "-c", "import flows.fleet_worker; print(flows.fleet_worker.__file__)"], cwd=CODE)
    if not Path(where).is_relative_to(CODE):
        raise Unfit(why=f"flows come from {where}, not from the code that was shipped to {CODE}")
    return f"from {CODE}"


def said(command: list[str], *, cwd: Path | None = None) -> str:
    """The first line that a program prints. Unfit: it isn't there, or failed, with its last line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST, cwd=cwd)
    except FileNotFoundError as error:
        raise Unfit(why=f"{command[0]} isn't installed") from error
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    if done.returncode:
        raise Unfit(why=f"{command[0]} ended with {done.returncode}: {lines[-1] if lines else 'no output'}")
    return lines[0] if lines else "done"


def _uv() -> str:
    from uv import find_uv_bin

    return shutil.which("uv") or find_uv_bin()


def send(checks: list[Check], address: str, region: str) -> None:
    """Put the report into S3. AwsRefused."""
    from fleet.aws.objects import Objects, bucket_and_key
    from fleet.aws.session import Aws

    bucket, key = bucket_and_key(address)
    report = {"checks": [{"name": each.name, "passed": each.passed, "detail": each.detail} for each in checks]}
    Objects(Aws(region), bucket).put(key, json.dumps(report, indent=2).encode())


def main() -> int:
    """All checks, told and sent; 1: one failed."""
    checks = run_checks(all_checks(os.environ))
    for each in checks:
        print(f"{'passed' if each.passed else 'FAILED'} {each.name}: {each.detail}", flush=True)  # noqa: T201
    if address := os.environ.get(REPORT):
        send(checks, address, os.environ["FLEET_BUCKET_REGION"])
    return 0 if all(each.passed for each in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
