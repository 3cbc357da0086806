"""The GPU check on a fake PCI bus with a fake `docker`. No machine of ours has a GPU: a real one was never asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.commands import Said
from bootstrap.gpu import IMAGE, PCI_DEVICES, GpuUnusable, check_gpu, nvidia_devices, pci_devices
from tests.bootstrap.fake_commands import FakeCommands

SEEN = "GPU 0: Tesla T4 (UUID: GPU-1)\nGPU 1: Tesla T4 (UUID: GPU-2)\n"


def bus(folder: Path, *vendors: str) -> Path:
    """A PCI bus with a device of each vendor."""
    for number, vendor in enumerate(vendors):
        device = folder / f"0000:00:{number:02x}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    return folder


def test_a_machine_without_one_is_told_and_asked_nothing(tmp_path: Path) -> None:
    docker = FakeCommands()
    assert list(check_gpu(bus(tmp_path, "0x8086", "0x1d0f"), {}, run=docker)) == ["no NVIDIA device: nothing to check"]
    assert docker.asked == []


def test_a_machine_without_a_bus_has_none(tmp_path: Path) -> None:
    assert nvidia_devices(tmp_path / "no-bus") == 0


def test_a_gpu_that_a_container_sees_is_named(tmp_path: Path) -> None:
    docker = FakeCommands({"docker run": Said(0, SEEN)})
    lines = list(check_gpu(bus(tmp_path, "0x8086", "0x10de", "0x10de"), {"PATH": "/bin"}, run=docker))
    assert lines == ["containers see 2 GPU(s)", "GPU 0: Tesla T4", "GPU 1: Tesla T4"]
    assert docker.asked[0].argv == ("docker", "run", "--rm", "--gpus", "all", IMAGE, "nvidia-smi", "-L")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            Said(125, err="docker: Error response from daemon: could not select device driver"),
            "could not select device driver",
        ),
        (Said(127, err='exec: "nvidia-smi": executable file not found'), "executable file not found"),
        (Said(9, "No devices were found\n"), "No devices were found"),
        (Said(0, "No devices were found\n"), "nvidia-smi lists none"),
    ],
)
def test_a_gpu_that_no_container_sees_is_fatal_in_dockers_words(tmp_path: Path, said: Said, why: str) -> None:
    with pytest.raises(GpuUnusable) as unusable:
        list(check_gpu(bus(tmp_path, "0x10de"), {}, run=FakeCommands({"docker run": said})))
    assert why in str(unusable.value)
    assert "--gpu" in str(unusable.value), "not every kind of image has it by default"
    assert "\n" not in str(unusable.value)


def test_a_machine_may_keep_its_own_devices_from_an_instance(tmp_path: Path) -> None:
    assert pci_devices({}) == PCI_DEVICES
    assert pci_devices({"FLEET_PCI_DEVICES": str(tmp_path)}) == tmp_path
