"""Volumes as folders: what a volume holds outlives the instances it is attached to, as on EC2.

    volumes/<volume>/filesystem           the type of its file system; absent: it has none
    volumes/<volume>/data/                what the file system holds
    instances/<instance>/devices/<volume> a link to the volume while it is attached
    instances/<instance>/mounts/<volume>  a file with the folder where it is mounted

An instance meets them by the commands of any Linux: shims of `lsblk`, `blkid`, `mkfs.ext4`, `mount` and the like, with the
arguments and exit codes of the real ones as far as anyone needs them.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from fleet.local.scratch import folder_of

VOLUMES = "volumes"
DEVICES = "devices"
MOUNTS = "mounts"

LSBLK = """\
line() {
    fs=null at=null name=${1##*/}
    [ -f "$1/filesystem" ] && fs="\\"$(cat "$1/filesystem")\\""
    [ -f "$mounts/$name" ] && at="\\"$(cat "$mounts/$name")\\""
    printf '%s{"path":"%s","serial":"vol%s","fstype":%s,"mountpoint":%s}' "$comma" "$1" "${name#vol-}" "$fs" "$at"
    comma=,
}
comma=
printf '{"blockdevices":['
for device in "$devices"/vol-*; do [ -d "$device" ] && line "$device"; done
printf ']}\\n'
"""
"""`lsblk --json --output …`: every attached volume; the serial number is the volume's id without its dash, as on EC2."""
LAST = """\
for last in "$@"; do :; done
"""
BLKID = f"""\
{LAST}[ -f "$last/filesystem" ] || exit 2
cat "$last/filesystem"
"""
"""`blkid -p -o value -s TYPE DEVICE`. 2: no device there, or nothing found on it."""
MKFS = f"""\
{LAST}[ -d "$last" ] || {{ echo "mkfs.ext4: no device $last" >&2; exit 1; }}
[ -f "$mounts/${{last##*/}}" ] && {{ echo "mkfs.ext4: $last is mounted" >&2; exit 1; }}
rm -rf "$last/data" && mkdir "$last/data" && echo ext4 >"$last/filesystem"
"""
"""`mkfs.ext4 DEVICE`: asks nothing, as the real one without a terminal, so that whatever was there is gone."""
MOUNT = f"""\
device=
{LAST}for word in "$@"; do [ "$word" = "$last" ] || device=$word; done
[ -f "$device/filesystem" ] || {{ echo "mount: $device: wrong fs type or bad superblock" >&2; exit 32; }}
rmdir "$last" || exit 32
ln -s "$(readlink "$device")/data" "$last" && mkdir -p "$mounts" && printf %s "$last" >"$mounts/${{device##*/}}"
"""
"""`mount DEVICE FOLDER`, an empty one."""
UMOUNT = f"""\
{LAST}[ -L "$last" ] || {{ echo "umount: $last: not mounted" >&2; exit 32; }}
rm "$last" && mkdir "$last"
for mount in "$mounts"/*; do [ "$(cat "$mount")" = "$last" ] && rm "$mount"; done
"""
RESIZE = ""
"""`resize2fs DEVICE`: a folder is as large as it is."""
SHIMS = {
    "lsblk": LSBLK,
    "blkid": BLKID,
    "mkfs.ext4": MKFS,
    "mount": MOUNT,
    "umount": UMOUNT,
    "resize2fs": RESIZE,
}


class Disks:
    """The volumes of one cloud. Called within the emulator's calls, under its lock: a few links and folders, no more."""

    def __init__(self, cloud: Path) -> None:
        self._cloud = cloud

    def attached(self, instance: str, volume: str) -> None:
        """The instance sees the volume from now on."""
        folder = self._cloud / VOLUMES / volume
        folder.mkdir(parents=True, exist_ok=True)
        devices = folder_of(self._cloud, instance) / DEVICES
        devices.mkdir(parents=True, exist_ok=True)
        (devices / volume).unlink(missing_ok=True)
        (devices / volume).symlink_to(folder)

    def detached(self, instance: str, volume: str) -> None:
        """It doesn't any more."""
        (folder_of(self._cloud, instance) / DEVICES / volume).unlink(missing_ok=True)

    def deleted(self, volume: str) -> None:
        """What it held is gone."""
        shutil.rmtree(self._cloud / VOLUMES / volume, ignore_errors=True)


def write_disk_shims(commands: Path, instance: Path) -> None:
    """Put SHIMS into the folder `commands` of the instance whose folder is `instance`."""
    where = f"devices={shlex.quote(str(instance / DEVICES))}\nmounts={shlex.quote(str(instance / MOUNTS))}\n"
    for name, body in SHIMS.items():
        path = commands / name
        path.write_text(f"#!/bin/sh\n{where}{body}")
        path.chmod(0o755)
