"""A system disk goes from an instance to its image and on to an instance of the image; this machine stays as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fleet.local.roots import Roots, write_system_shims


def test_what_an_instance_writes_is_in_its_image_and_in_an_instance_of_that(tmp_path: Path) -> None:
    roots = Roots(tmp_path)
    roots.has_base("ami-base")
    first = roots.boot("i-1", "ami-base")
    assert first is not None
    (first / "etc").mkdir()
    (first / "etc/says").write_text("baked")
    roots.copied("i-1", "ami-new")
    roots.forgotten("i-1")
    second = roots.boot("i-2", "ami-new")
    assert second is not None
    assert (second / "etc/says").read_text() == "baked"
    assert not first.exists()


def test_an_instance_of_an_image_without_a_disk_here_has_none(tmp_path: Path) -> None:
    roots = Roots(tmp_path)
    assert roots.boot("i-1", "ami-other") is None
    roots.copied("i-1", "ami-new")
    assert not (tmp_path / "roots").exists()


def test_a_disk_is_what_it_was_when_its_instance_boots_again(tmp_path: Path) -> None:
    roots = Roots(tmp_path)
    roots.has_base("ami-base")
    first = roots.boot("i-1", "ami-base")
    assert first is not None
    (first / "kept").touch()
    again = roots.boot("i-1", "ami-base")
    assert again == first
    assert (first / "kept").exists()


def run(shims: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{shims}{os.pathsep}{os.defpath}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_what_apt_get_is_told_to_install_is_noted_and_dpkg_query_knows_it(tmp_path: Path) -> None:
    shims, root = tmp_path / "bin", tmp_path / "root"
    shims.mkdir()
    root.mkdir()
    write_system_shims(shims, root)
    assert run(shims, "apt-get", "-qq", "update").returncode == 0
    assert run(shims, "dpkg-query", "--show", "docker.io").returncode == 1
    assert run(shims, "apt-get", "-qq", "install", "--no-install-recommends", "git", "docker.io").returncode == 0
    assert run(shims, "dpkg-query", "--show", "docker.io").stdout == "docker.io\tlocal\n"
    assert run(shims, "dpkg-query", "--show", "docker").returncode == 1
    assert run(shims, "systemctl", "enable", "docker.service").stdout.startswith(
        "systemctl enable docker.service: noted"
    )
