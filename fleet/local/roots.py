"""System disks as folders, for instances from which images are made: what is baked outlives the instance, in its image.

    roots/<image>      what an image holds; made by CreateImage, and for the base images when the cloud starts
    roots/<instance>   what an instance of such an image sees as $FLEET_ROOT, in place of /

An instance of another image has none: nothing writes to this machine's own files then either. Beside it, such an instance meets
the commands that would change an operating system as shims, so that nothing is installed on this machine.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

ROOTS = "roots"
VARIABLE = "FLEET_ROOT"
PACKAGES = "var/lib/local-cloud/packages"
"""In a root: the packages that were installed there, a line each."""

APT_GET = f"""\
list=$root/{PACKAGES}
seen=
for word in "$@"; do
    case $word in
    -*) ;;
    install) seen=1 ;;
    *) if [ "$seen" ]; then mkdir -p "${{list%/*}}" && echo "$word" >>"$list"; fi ;;
    esac
done
echo "apt-get $*: noted, nothing is installed on this machine"
"""
DPKG_QUERY = f"""\
for last in "$@"; do :; done
grep -qxF "$last" "$root/{PACKAGES}" 2>/dev/null || {{ echo "dpkg-query: no packages found matching $last" >&2; exit 1; }}
printf '%s\\tlocal\\n' "$last"
"""
APT_HELPER = """\
for last in "$@"; do :; done
: >"$last"
echo "apt-helper $*: an empty file stands for it"
"""
NOTED = """\
echo "${0##*/} $*: noted, this machine stays as it is"
"""
SHIMS = {
    "apt-get": APT_GET,
    "dpkg-query": DPKG_QUERY,
    "apt-helper": APT_HELPER,
    **dict.fromkeys(("systemctl", "useradd", "usermod", "cloud-init"), NOTED),
}


class Roots:
    """The system disks of one cloud."""

    def __init__(self, cloud: Path) -> None:
        self._folder = cloud / ROOTS

    def clear(self) -> None:
        """None is left of an earlier run of this cloud: its images are forgotten too."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def has_base(self, image: str) -> None:
        """An image with an empty disk."""
        (self._folder / image).mkdir(parents=True, exist_ok=True)

    def boot(self, instance: str, image: str) -> Path | None:
        """The root of an instance, the image's when it boots for the first time. None: its image has no disk here."""
        if not (self._folder / instance).is_dir():
            if not (self._folder / image).is_dir():
                return None
            self.copied(image, instance)
        return self._folder / instance

    def copied(self, source: str, target: str) -> None:
        """What `source` holds now is what `target` holds; nothing where `source` has no disk here."""
        if (self._folder / source).is_dir():
            shutil.copytree(self._folder / source, self._folder / target, symlinks=True, dirs_exist_ok=True)

    def forgotten(self, owner: str) -> None:
        """The disk of an image or instance is gone."""
        shutil.rmtree(self._folder / owner, ignore_errors=True)


def write_system_shims(commands: Path, root: Path) -> None:
    """Put SHIMS into the folder `commands` of the instance whose root is `root`."""
    for name, body in SHIMS.items():
        path = commands / name
        path.write_text(f"#!/bin/sh\nroot={shlex.quote(str(root))}\n{body}")
        path.chmod(0o755)
