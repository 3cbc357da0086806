"""A GPU that is in the machine must be one that containers see: found out before a job takes an hour to fail for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from bootstrap.commands import Commands, image_build, run_command
from bootstrap.host import HostUnfit

NVIDIA = "0x10de"
"""NVIDIA's number as a PCI vendor."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
PCI_DEVICES_TOLD = "FLEET_PCI_DEVICES"
"""Environment: another folder of devices, for a machine that doesn't offer its own to an instance."""
IMAGE = "ubuntu:22.04"
"""Any image does: the container toolkit puts `nvidia-smi` into it."""
CHECK_SECONDS = 300
"""The image may have to be pulled first."""


class GpuUnusable(HostUnfit):
    """The machine has a GPU and containers don't see it."""

    devices: int
    why: str

    def message(self) -> str:
        """One line: what is there, Docker's words, what to do."""
        return (
            f"this instance has {self.devices} NVIDIA device(s) and no container sees one: {self.why}. Use a worker image with "
            f"NVIDIA's driver and container toolkit (`{image_build('--gpu')}` puts them in), or an instance type without a GPU"
        )


def pci_devices(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder in which the kernel lists this machine's PCI devices."""
    return Path(environ.get(PCI_DEVICES_TOLD) or PCI_DEVICES)


def nvidia_devices(folder: Path) -> int:
    """How many devices of NVIDIA's the kernel lists in `folder`; none where there is no PCI bus."""
    return sum(_vendor(path) == NVIDIA for path in folder.glob("*/vendor"))


def check_gpu(
    folder: Path, env: Mapping[str, str], *, image: str = IMAGE, run: Commands = run_command
) -> Iterator[str]:
    """Have a container list the GPUs, if the machine has any; each step told in a line. GpuUnusable."""
    devices = nvidia_devices(folder)
    if not devices:
        yield "no NVIDIA device: nothing to check"
        return
    said = run(["docker", "run", "--rm", "--gpus", "all", image, "nvidia-smi", "-L"], env=env, seconds=CHECK_SECONDS)
    seen = [line.strip() for line in said.out.splitlines() if line.startswith("GPU ")]
    if said.code or not seen:
        raise GpuUnusable(devices=devices, why=said.why if said.code else f"nvidia-smi lists none ({said.why})")
    yield f"containers see {len(seen)} GPU(s)"
    yield from (line.partition(" (UUID")[0] for line in seen)


def _vendor(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # a device that is unplugged meanwhile
        return ""
