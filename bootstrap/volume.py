"""The control plane's volume: attached, given a file system if it is new, and mounted. Never formatted when it may hold data.

`next_step` decides from what EC2 and this machine say; `Volume` asks them and does the step, until the volume is mounted.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.session import Aws
from fleet.errors import FleetError

OURS = "ext4"
"""The file system that is made here."""
NOTHING_FOUND = 2
"""blkid's exit code for a device on which it finds no file system, partition table or other signature."""
DEVICE = "/dev/sdf"
"""A name EC2 asks for; on Nitro instances the kernel gives another, and the serial number says which."""
LOOK_SECONDS = 2.0
LONGEST_SECONDS = 900.0
"""Of one command: a mount that has a journal to go through takes minutes; one on a device that hangs would take for ever."""
TOO_LATE = 124
"""Exit code of a command that didn't end by then, by the custom of timeout(1)."""
TRY_AGAIN = frozenset({"IncorrectState", "IncorrectInstanceState", "VolumeInUse"})
"""AWS's codes for a volume or an instance that isn't ready for it yet."""


class VolumeUnfit(FleetError):
    """The volume can't be used, and nothing was done to it."""

    volume: str
    why: str

    def message(self) -> str:
        """One line: which, why, and that a person has to look."""
        return (
            f"the volume {self.volume} can't be used: {self.why}. It was left as it is; look at it before anything else"
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """A volume as EC2 and this machine show it at one moment."""

    state: str
    """EC2's word: creating, available, in-use, …"""
    attached_to: str | None = None
    device: str | None = None
    """Path of the block device here."""
    filesystem: str | None = None
    """What blkid finds on the device; None: it says that there is nothing."""
    unclear: str = ""
    """Why it can't be told whether there is something on the device."""
    mounted_at: str | None = None


class Step(Enum):
    """What is to be done next."""

    WAIT = "wait"
    ATTACH = "attach"
    FORMAT = "format"
    MOUNT = "mount"
    READY = "ready"


def next_step(volume: str, seen: Seen, *, instance: str, folder: str) -> Step:
    """The one thing to do for `volume` on `instance`, to be mounted at `folder`. VolumeUnfit: only a person can tell.

    A file system is made only on a device of which blkid says that it holds nothing; no answer, an unclear one, or a file system
    that isn't ours is left alone.
    """
    if seen.state == "available":
        return Step.ATTACH
    if seen.state != "in-use":
        if seen.state == "creating":
            return Step.WAIT
        raise VolumeUnfit(volume=volume, why=f"EC2 says that it is {seen.state}")
    if seen.attached_to != instance or seen.device is None:
        return Step.WAIT
    if seen.mounted_at is not None:
        if seen.mounted_at == folder:
            return Step.READY
        raise VolumeUnfit(volume=volume, why=f"it is mounted at {seen.mounted_at}, not at {folder}")
    if seen.unclear:
        raise VolumeUnfit(volume=volume, why=f"what it holds can't be told ({seen.unclear})")
    if seen.filesystem is None:
        return Step.FORMAT
    if seen.filesystem != OURS:
        raise VolumeUnfit(volume=volume, why=f"it holds {seen.filesystem}, not {OURS}")
    return Step.MOUNT


Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def run_command(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of the machine; one that hangs is ended and answers with TOO_LATE. OSError: there is none of that name."""
    argv = list(command)
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            argv, TOO_LATE, "", f"no end within {LONGEST_SECONDS:g} s: does the device answer?"
        )


class Volume:
    """One volume on its way into one folder of this instance."""

    def __init__(
        self,
        aws: Aws,
        volume: str,
        *,
        instance: str,
        folder: Path,
        say: Callable[[str], None],
        run: Run = run_command,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._aws = aws
        self._id = volume
        self._instance = instance
        self._folder = folder
        self._say = say
        self._run = run
        self._sleep = sleep

    def mount(self) -> None:
        """Until it is mounted; for ever, where another instance has it. VolumeUnfit. AwsRefused: EC2 refuses for good."""
        said = ""
        while True:
            seen = self.look()
            step = next_step(self._id, seen, instance=self._instance, folder=str(self._folder))
            if step is Step.READY:
                return
            line = f"volume {self._id}: {step.value} ({seen.state}{f', on {seen.attached_to}' if seen.attached_to else ''})"
            if line != said:
                self._say(line)
                said = line
            if not self._do(step, seen):
                self._sleep(LOOK_SECONDS)

    def look(self) -> Seen:
        """What EC2 and this machine say now."""
        with calling("ec2", self._id):
            found = self._aws.ec2.describe_volumes(VolumeIds=[self._id])["Volumes"][0]
        attached_to = next((one.get("InstanceId") for one in found.get("Attachments", [])), None)
        state = str(found["State"])
        block = self._block_device() if attached_to == self._instance else None
        if block is None:
            return Seen(state, attached_to)
        device = str(block["path"])
        if block.get("mountpoint"):
            return Seen(state, attached_to, device, mounted_at=str(block["mountpoint"]))
        # lsblk's own word on the file system is udev's, which may not have looked yet.
        probed = self._run(["blkid", "-p", "-o", "value", "-s", "TYPE", device])
        if probed.returncode == NOTHING_FOUND and not block.get("fstype"):
            return Seen(state, attached_to, device)
        if probed.returncode == 0 and probed.stdout.strip():
            return Seen(state, attached_to, device, filesystem=probed.stdout.strip())
        unclear = f"blkid ended with {probed.returncode}, and lsblk says {block.get('fstype') or 'nothing'}"
        return Seen(state, attached_to, device, unclear=unclear)

    def _block_device(self) -> dict[str, Any] | None:
        listed = self._run(["lsblk", "--json", "--output", "PATH,SERIAL,FSTYPE,MOUNTPOINT"])
        if listed.returncode:
            return None
        serial = self._id.replace("-", "")  # as EBS gives it to the NVMe device
        devices: list[dict[str, Any]] = json.loads(listed.stdout)["blockdevices"]
        return next((one for one in devices if one.get("serial") == serial), None)

    def _do(self, step: Step, seen: Seen) -> bool:
        """Whether something was done, after which to look at once."""
        if step is Step.ATTACH:
            return self._attach()
        if step is Step.FORMAT:
            self._must(["mkfs.ext4", "-q", "-L", "inspect-fleet", str(seen.device)])
        elif step is Step.MOUNT:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._must(["mount", "-o", "noatime", str(seen.device), str(self._folder)])
            self._must(["resize2fs", str(seen.device)])  # to the volume's size, if that has grown since
        return step is not Step.WAIT

    def _attach(self) -> bool:
        try:
            with calling("ec2", self._id):
                self._aws.ec2.attach_volume(VolumeId=self._id, InstanceId=self._instance, Device=DEVICE)
        except AwsRefused as refused:
            if refused.code not in TRY_AGAIN:
                raise
            return False
        return True

    def _must(self, command: Sequence[str]) -> None:
        done = self._run(command)
        if done.returncode:
            why = f"`{' '.join(command)}` ended with {done.returncode}: {' '.join(done.stderr.split())[:300]}"
            raise VolumeUnfit(volume=self._id, why=why)
