"""The bake itself: its pieces run for real, with the commands that would change this machine's system as shims."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest

from bootstrap.host import (
    COMPOSE_AT_LEAST,
    ENGINE_AT_LEAST,
    INOTIFY_INSTANCES,
    POOL_BASE,
    POOL_SIZE,
    DockerFacts,
    judge,
)
from fleet.local.roots import write_system_shims
from worker_image.bake.drive import STEP, environment
from worker_image.bake.locked import differences
from worker_image.recipe import BAKE, PYTHON, Recipe

ROOT = Path(__file__).parents[2]
LOCK = BAKE / "requirements.lock"
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that is baked: its root, and shims first on its PATH."""
    root, shims = tmp_path / "root", tmp_path / "bin"
    root.mkdir()
    shims.mkdir()
    write_system_shims(shims, root)
    (shims / "fleet-python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (shims / "fleet-python").chmod(0o755)
    return {
        "PATH": f"{shims}{os.pathsep}{os.defpath}",
        "FLEET_ROOT": str(root),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }


def bake(recipe: Recipe, machine: dict[str, str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(recipe.bundle)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(bundle), str(tmp_path / "bundle")], check=True)
    return subprocess.run(
        [sys.executable, str(tmp_path / "bundle" / "drive.py")],
        env=machine,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_step_runs_and_the_machine_is_what_the_host_checks_want(machine: dict[str, str], tmp_path: Path) -> None:
    done = bake(Recipe(), machine, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(STEP) == len(list((BAKE / "steps").glob("*.sh")))
    root = Path(machine["FLEET_ROOT"])
    settings = json.loads((root / "etc/docker/daemon.json").read_text())
    pools = [(pool["base"], pool["size"]) for pool in settings["default-address-pools"]]
    facts = DockerFacts(engine=dotted(ENGINE_AT_LEAST), compose=dotted(COMPOSE_AT_LEAST), pools=None, file_pools=pools)
    judge(facts)  # raises where an instance would be refused
    assert settings["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    about = json.loads((root / "etc/inspect-fleet/image.json").read_text())
    assert about.items() >= json.loads(Recipe().document()).items()
    packages = (root / "var/lib/local-cloud/packages").read_text().split()
    assert {"docker.io", "docker-compose-v2", "git", "nvidia-container-toolkit"} <= {*packages}


def test_without_a_gpu_nothing_of_nvidia_is_baked(machine: dict[str, str], tmp_path: Path) -> None:
    done = bake(Recipe(gpu=False), machine, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    root = Path(machine["FLEET_ROOT"])
    assert "nvidia" not in (root / "var/lib/local-cloud/packages").read_text()
    assert "runtimes" not in json.loads((root / "etc/docker/daemon.json").read_text())


def test_a_step_that_fails_ends_the_bake_with_its_exit_code(machine: dict[str, str], tmp_path: Path) -> None:
    """And no image file says that the machine is a worker image."""
    shim = Path(machine["PATH"].partition(os.pathsep)[0]) / "systemctl"
    shim.write_text("#!/bin/sh\necho no such unit >&2\nexit 5\n")
    done = bake(Recipe(gpu=False), machine, tmp_path)
    assert done.returncode == 5
    assert "step 20-docker failed with exit code 5" in done.stdout
    assert not (Path(machine["FLEET_ROOT"]) / "etc/inspect-fleet/image.json").exists()


def test_keys_logs_and_identities_are_cleaned_away(machine: dict[str, str], tmp_path: Path) -> None:
    root = Path(machine["FLEET_ROOT"])
    gone = [
        "etc/ssh/ssh_host_ed25519_key",
        "root/.ssh/authorized_keys",
        "home/ubuntu/.ssh/authorized_keys",
        "root/.bash_history",
    ]
    for name in [*gone, "var/log/syslog", "etc/ssh/sshd_config"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("something")
    assert bake(Recipe(gpu=False), machine, tmp_path).returncode == 0
    assert [name for name in gone if (root / name).exists()] == []
    assert (root / "var/log/syslog").read_text() == ""
    assert (root / "etc/ssh/sshd_config").exists()


@pytest.mark.parametrize(("mode", "shared"), [(0o755, True), (0o555, False)], ids=["may write", "may not"])
def test_whoever_may_not_write_the_shared_caches_has_their_own(mode: int, shared: bool) -> None:
    """uv ends with "permission denied" in a cache of root's; without these variables it takes the home folder."""
    with tempfile.TemporaryDirectory() as folder:  # not pytest's, which another user may not enter
        opt = Path(folder, "opt")
        python = opt / "inspect-fleet/venv/bin/python"
        python.parent.mkdir(parents=True)
        python.symlink_to(shutil.which("env") or "/usr/bin/env")
        script = Path(folder, "fleet-python")
        script.write_text((BAKE / "files/fleet-python").read_text().replace("/opt/", f"{opt}/"))
        for name in ("uv-cache", "uv-python"):
            (opt / name).mkdir()
            (opt / name).chmod(mode)
        Path(folder).chmod(0o755)
        other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 and not shared else {}
        command = ["/bin/sh", str(script)]
        said = subprocess.run(command, env={"HOME": "/h"}, capture_output=True, text=True, check=True, **other).stdout  # type: ignore[call-overload]
        told = dict(line.split("=", 1) for line in said.splitlines())
        wanted = {"UV_CACHE_DIR": f"{opt}/uv-cache", "UV_PYTHON_INSTALL_DIR": f"{opt}/uv-python"} if shared else {}
        assert {name: value for name, value in told.items() if name.startswith("UV_")} == wanted


def test_the_addresses_and_limits_are_those_that_the_host_checks_name() -> None:
    """Two rooms that may not import each other: one source of truth is held here."""
    settings = json.loads((BAKE / "files/daemon.json").read_text())
    assert settings["default-address-pools"] == [{"base": POOL_BASE, "size": POOL_SIZE}]
    assert f"fs.inotify.max_user_instances = {INOTIFY_INSTANCES}\n" in (BAKE / "files/sysctl.conf").read_text()


def test_every_file_is_installed_by_a_step() -> None:
    steps = "".join(step.read_text() for step in (BAKE / "steps").iterdir())
    assert [file.name for file in (BAKE / "files").iterdir() if file.name not in steps] == []


def test_an_out_of_memory_kill_ends_one_process_and_not_the_worker() -> None:
    lines = (BAKE / "files/survive-oom.conf").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["[Service]", "OOMPolicy=continue"]
    assert "/etc/systemd/system/cloud-final.service.d/" in (BAKE / "steps/50-host.sh").read_text()


def test_the_images_lock_is_the_projects_without_what_only_developers_need() -> None:
    project, image = dict(PIN.findall((ROOT / "requirements.lock").read_text())), PIN.findall(LOCK.read_text())
    assert [pin for pin in image if pin not in PIN.findall((ROOT / "requirements.lock").read_text())] == []
    assert {"prefect", "prefect-aws", "boto3", "inspect-ai", "pydantic", "uv"} <= {name for name, _ in image}
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & {name for name, _ in image}
    assert len(image) < len(project)


def test_every_file_that_the_lock_names_has_its_hash() -> None:
    blocks = re.split(r"\n(?=\S)", LOCK.read_text().strip())
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


def test_the_images_python_is_one_that_the_project_takes() -> None:
    assert sys.version_info[:2] >= tuple(int(part) for part in PYTHON.split("."))


def test_what_is_installed_here_is_what_is_locked_and_a_difference_is_named() -> None:
    assert differences(LOCK.read_text()) == []
    version = metadata.version("boto3")
    assert differences("boto3==0.0.1 \\\n    --hash=sha256:00\nabsent-here==1 ; sys_platform == 'win32'\n") == [
        f"boto3: {version}, locked is 0.0.1"
    ]
    assert differences("absent-here==1\n") == ["absent-here: absent, locked is 1"]


@pytest.mark.parametrize(("script", "off"), [(True, False), (False, True)], ids=["user data ran", "none ran"])
def test_an_instance_whose_user_data_never_ran_powers_off(tmp_path: Path, script: bool, off: bool) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/shutdown").write_text(f"#!/bin/sh\ntouch {tmp_path}/off\n")
    (tmp_path / "bin/shutdown").chmod(0o755)
    (tmp_path / "instance/scripts").mkdir(parents=True)
    if script:
        (tmp_path / "instance/scripts/part-001").touch()
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.defpath}"
    subprocess.run(["sh", str(BAKE / "files/guard.sh"), str(tmp_path)], env={"PATH": path}, check=True)
    assert (tmp_path / "off").exists() is off


def test_every_shell_script_of_the_image_passes_the_linter() -> None:
    """Also one that has no ending by which `make check` would find it, since people call it."""
    files = [path for path in BAKE.rglob("*") if path.is_file()]
    scripts = [path for path in files if re.match(rb"#!.*\b(ba)?sh\n", path.read_bytes())]
    assert {"fleet-python", "guard.sh", "20-docker.sh"} <= {path.name for path in scripts}
    checked = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", *scripts], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


def test_images_to_pull_reach_their_step_a_line_each() -> None:
    told = environment({"gpu": False, "pull": ["alpine", "python:3.12"], "python": "3.11"}, {})
    assert told["FLEET_PULL"] == "alpine\npython:3.12"
    assert told["FLEET_GPU"] == ""


def dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)
