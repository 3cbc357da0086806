"""The one process of the local cloud that stands for AWS: emulator, metadata service and hypervisor.

    python -m fleet.local.host --folder DIR

It prints one JSON line when it is ready: `{"aws": URL, "metadata": URL, "pid": N}`. On SIGTERM or SIGINT it ends, and no process
of an instance outlives it. If it is killed, the next host of that folder ends what was left before it is ready, and
so does `processes.sweep`. One host a folder: a second one says so and exits with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.errors import FleetError
from fleet.local.control import Control
from fleet.local.disks import Disks
from fleet.local.emulator import Emulator
from fleet.local.hypervisor import Hypervisor
from fleet.local.metadata import MetadataService
from fleet.local.processes import sweep
from fleet.local.roots import Roots
from fleet.local.surroundings import surroundings

log = logging.getLogger(__name__)

LOCK = "host.lock"


class FolderTaken(FleetError):
    """Another host runs on this folder."""

    folder: str

    def message(self) -> str:
        """One line: which folder."""
        return f"a local cloud runs in {self.folder} already"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """The folder, for this process alone and while it lives. FolderTaken: another has it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise FolderTaken(folder=str(folder)) from error
    try:
        yield
    finally:
        os.close(lock)


def forget_the_person() -> None:
    """Drop the AWS configuration of whoever starts this: botocore, inside moto, would read it, and a profile that is named
    but absent would be fatal."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull


async def serve(folder: Path) -> None:
    """Run the host in a folder that is owned, until SIGTERM or SIGINT."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, over.set)

    hypervisor = Hypervisor(folder)
    emulator = Emulator(hypervisor, hypervisor.console, Disks(folder), Roots(folder))
    metadata = MetadataService(emulator.machines, hypervisor, lambda: hypervisor.timing.credentials)
    endpoint, metadata_endpoint = emulator.start(Control(emulator.faults, hypervisor)), metadata.start()
    hypervisor.connect(
        emulator.machines,
        {
            **surroundings(os.environ, Path.home()),
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_endpoint,
        },
    )
    print(json.dumps({"aws": endpoint, "metadata": metadata_endpoint, "pid": os.getpid()}), flush=True)  # noqa: T201
    emulator.warm()
    try:
        await over.wait()
    finally:
        emulator.refuse_all()
        await asyncio.gather(hypervisor.stop(), asyncio.to_thread(emulator.stop), asyncio.to_thread(metadata.stop))


def end_leftovers(folder: Path) -> None:
    """End what an earlier host left, if it was killed; the consoles' outputs stay."""
    for one in sweep(folder):
        log.error("process %d of an earlier local cloud in %s could not be killed", one.pid, folder)


def main(arguments: list[str] | None = None) -> int:
    """Run the host; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m fleet.local.host", description="Emulate AWS on this machine.")
    parser.add_argument("--folder", type=Path, required=True, help="state of this local cloud")
    folder: Path = parser.parse_args(arguments).folder.resolve()
    forget_the_person()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    try:
        with owned(folder):
            end_leftovers(folder)
            asyncio.run(serve(folder))
            end_leftovers(folder)
    except FleetError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
