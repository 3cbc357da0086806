"""The control plane's volume: what is done in each state, and above all what isn't."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from bootstrap import volume
from bootstrap.volume import Seen, Step, Volume, VolumeUnfit, next_step
from fleet.aws.failures import AwsRefused
from fleet.aws.session import Aws

VOLUME, ME, OTHER = "vol-0123456789abcdef0", "i-0123456789abcdef0", "i-0fedcba9876543210"
ATTACHED = Seen("in-use", ME, "/dev/nvme1n1")
ROWS = [
    ("on its way", Seen("creating"), Step.WAIT),
    ("free", Seen("available"), Step.ATTACH),
    ("with the instance before us, which ends", Seen("in-use", OTHER), Step.WAIT),
    ("attached, and the kernel hasn't seen it", Seen("in-use", ME), Step.WAIT),
    ("new", ATTACHED, Step.FORMAT),
    ("with our file system", replace(ATTACHED, filesystem="ext4"), Step.MOUNT),
    ("mounted", replace(ATTACHED, mounted_at="/data"), Step.READY),
]


@pytest.mark.parametrize(("seen", "step"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_there_is_one_step_for_each_state(seen: Seen, step: Step) -> None:
    assert next_step(VOLUME, seen, instance=ME, folder="/data") is step


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Seen("error"), "EC2 says that it is error"),
        (Seen("deleting"), "deleting"),
        (replace(ATTACHED, filesystem="xfs"), "holds xfs, not ext4"),
        (replace(ATTACHED, unclear="blkid ended with 8"), "blkid ended with 8"),
        (replace(ATTACHED, mounted_at="/mnt"), "mounted at /mnt"),
    ],
)
def test_what_only_a_person_can_tell_is_left_alone(seen: Seen, why: str) -> None:
    with pytest.raises(VolumeUnfit, match=why):
        next_step(VOLUME, seen, instance=ME, folder="/data")


texts = st.none() | st.sampled_from(["ext4", "xfs", "crypto_LUKS", "/data", "/mnt", ME, OTHER])


@given(
    st.builds(
        Seen,
        state=st.sampled_from(["creating", "available", "in-use", "deleting", "error"]),
        attached_to=texts,
        device=texts,
        filesystem=texts,
        unclear=st.sampled_from(["", "blkid ended with 8"]),
        mounted_at=texts,
    )
)
def test_only_a_device_that_surely_holds_nothing_is_formatted(seen: Seen) -> None:
    try:
        step = next_step(VOLUME, seen, instance=ME, folder="/data")
    except VolumeUnfit:
        return
    if step is Step.FORMAT:
        assert seen.attached_to == ME
        assert (seen.filesystem, seen.unclear, seen.mounted_at) == (None, "", None)


@dataclass
class Machine:
    """EC2 with one volume, and the machine it is attached to. `content` is what the device holds."""

    content: str | None = None
    attached_to: str | None = None
    blkid: int | None = None
    refusals: list[str] = field(default_factory=list)
    mounted_at: str | None = None
    commands: list[str] = field(default_factory=list)
    waits: int = 0

    @property
    def aws(self) -> Aws:
        return cast("Aws", SimpleNamespace(ec2=self))

    def describe_volumes(self, VolumeIds: list[str]) -> dict[str, Any]:  # noqa: N803
        assert VolumeIds == [VOLUME]
        attachments = [{"InstanceId": self.attached_to}] if self.attached_to else []
        return {"Volumes": [{"State": "in-use" if attachments else "available", "Attachments": attachments}]}

    def attach_volume(self, VolumeId: str, InstanceId: str, Device: str) -> None:  # noqa: N803
        assert (VolumeId, Device) == (VOLUME, "/dev/sdf")
        if self.refusals:
            raise ClientError({"Error": {"Code": self.refusals.pop(0), "Message": "no"}}, "AttachVolume")
        self.attached_to = InstanceId

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        name, code, out = command[0], 0, ""
        if name == "lsblk":
            device = {"path": "/dev/nvme1n1", "serial": "vol0123456789abcdef0", "fstype": None}
            root = {"path": "/dev/nvme0n1", "serial": "vol0ffffffffffffffff", "fstype": None, "mountpoint": "/"}
            out = json.dumps({"blockdevices": [root, {**device, "mountpoint": self.mounted_at}]})
        elif name == "blkid":
            code = self.blkid if self.blkid is not None else (0 if self.content else 2)
            out = self.content or ""
        else:
            self.commands.append(" ".join(command))
            if name == "mkfs.ext4":
                self.content = "ext4"
            elif name == "mount":
                self.mounted_at = command[-1]
        return subprocess.CompletedProcess(list(command), code, out, "")

    def sleep(self, _: float) -> None:
        self.waits += 1
        if self.waits == 3 and self.attached_to == OTHER:
            self.attached_to = None

    def mount(self, folder: Path) -> None:
        Volume(self.aws, VOLUME, instance=ME, folder=folder, say=lambda _: None, run=self.run, sleep=self.sleep).mount()


def test_a_new_volume_is_attached_formatted_and_mounted(tmp_path: Path) -> None:
    machine = Machine()
    machine.mount(tmp_path / "data")
    assert machine.commands == [
        "mkfs.ext4 -q -L inspect-fleet /dev/nvme1n1",
        f"mount -o noatime /dev/nvme1n1 {tmp_path / 'data'}",
        "resize2fs /dev/nvme1n1",
    ]


def test_one_with_data_is_mounted_once_the_instance_before_is_gone(tmp_path: Path) -> None:
    machine = Machine(content="ext4", attached_to=OTHER)
    machine.mount(tmp_path / "data")
    assert machine.commands == [f"mount -o noatime /dev/nvme1n1 {tmp_path / 'data'}", "resize2fs /dev/nvme1n1"]
    assert machine.waits == 3


@pytest.mark.parametrize("blkid", [4, 8, 127, 0])
def test_no_clear_answer_of_blkid_means_no_new_file_system(blkid: int, tmp_path: Path) -> None:
    machine = Machine(attached_to=ME, blkid=blkid)
    with pytest.raises(VolumeUnfit, match="left as it is"):
        machine.mount(tmp_path / "data")
    assert machine.commands == []


@pytest.mark.timeout(30)
@pytest.mark.fault("hang")
def test_a_command_that_hangs_is_ended_and_the_volume_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume, "LONGEST_SECONDS", 0.1)
    machine = Machine(content="ext4", attached_to=ME)
    answered = machine.run

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return volume.run_command(["sleep", "60"]) if command[0] == "mount" else answered(command)

    monkeypatch.setattr(machine, "run", run)
    with pytest.raises(VolumeUnfit, match=r"`mount .*` ended with 124: no end within 0\.1 s: does the device answer\?"):
        machine.mount(tmp_path / "data")


def test_an_instance_that_isnt_ready_is_waited_for_and_a_wrong_zone_is_not(tmp_path: Path) -> None:
    machine = Machine(refusals=["IncorrectState", "VolumeInUse"])
    machine.mount(tmp_path / "data")
    assert machine.waits == 2
    with pytest.raises(AwsRefused, match=r"InvalidVolume\.ZoneMismatch"):
        Machine(refusals=["InvalidVolume.ZoneMismatch"]).mount(tmp_path / "data")
