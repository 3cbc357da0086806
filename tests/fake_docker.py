"""The command `docker`, as far as the host steps of an instance ask it: for hosts on which one thing is wrong."""

from __future__ import annotations

from pathlib import Path

WRONG = "FAKE_DOCKER"
"""Environment: what goes wrong: `stopped`, `pool`, `password`; anything else: nothing. Containers see no GPU in any case."""

_SCRIPT = f"""#!/bin/sh
case "${WRONG} $1" in
    "stopped info") echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1 ;;
    "pool info") echo '{{"ServerVersion": "26.1.5", "DefaultAddressPools": [{{"Base": "172.16.0.0/12", "Size": 16}}]}}' ;;
    *" info") echo '{{"ServerVersion": "26.1.5", "DefaultAddressPools": [{{"Base": "10.224.0.0/11", "Size": 24}}]}}' ;;
    *" compose") echo 2.26.1 ;;
    "password login") echo 'Error response from daemon: unauthorized: incorrect username or password' >&2; exit 1 ;;
    *" login") echo 'Login Succeeded' ;;
    *" run") echo 'docker: could not select device driver with capabilities: [[gpu]]' >&2; exit 125 ;;
    *) exit 64 ;;
esac
"""


def put_docker(folder: Path) -> None:
    """Put the command into `folder`, which goes first on the PATH."""
    (folder / "docker").write_text(_SCRIPT)
    (folder / "docker").chmod(0o755)


def put_devices(folder: Path, *, gpu: bool) -> Path:
    """A folder of PCI devices like the kernel's, with an NVIDIA one or without."""
    (folder / "0000:00:1e.0").mkdir(parents=True)
    (folder / "0000:00:1e.0" / "vendor").write_text("0x10de\n" if gpu else "0x1d0f\n")
    return folder
