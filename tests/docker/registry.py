"""A registry of images on loopback that asks for a password: Debian's docker-registry, as .ci/prepare installs it."""

from __future__ import annotations

import base64
import http.client
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "docker-registry"
USER = "someone"
TOKEN = "a-token-that-nobody-may-see"
HASH = "$2b$04$abcdefghijklmnopqrstuuPJBQrsHSKWMhILLl5duQY6mYvtZ03V."
"""bcrypt of TOKEN at its lowest cost: the registry takes no other kind, and Python makes none."""


@dataclass(frozen=True)
class Registry:
    """One that runs."""

    address: str
    """Host and port: Docker speaks plain HTTP to loopback."""


def is_there() -> bool:
    """Whether this machine has the program."""
    return shutil.which(PROGRAM) is not None


@contextmanager
def serving(folder: Path) -> Iterator[Registry]:
    """A registry with its files in `folder`, for as long as the block lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "passwords").write_text(f"{USER}:{HASH}\n")
    (folder / "registry.yml").write_text(
        f"""
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/images}}}}
http: {{addr: 127.0.0.1:{port}}}
auth: {{htpasswd: {{realm: tests, path: {folder}/passwords}}}}
"""
    )
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "serve", str(folder / "registry.yml")], stdout=log, stderr=log)
        try:
            _await(port, process, folder / "registry.log")
            yield Registry(f"127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(10)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/v2/", headers={"Authorization": f"Basic {_basic()}"})
            status = connection.getresponse().status
        except (ConnectionError, TimeoutError):
            time.sleep(0.05)
        else:
            assert status == 200, "the registry refuses its own password"
            return
    raise AssertionError(f"the registry didn't start: {log.read_text(errors='replace')[-500:]}")


def _basic() -> str:
    return base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
