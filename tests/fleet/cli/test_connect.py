"""`fleet connect` against an instance of the local cloud that answers as a server does, through a stand-in for AWS's plugin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.aws.session import Aws
from fleet.local import preset
from fleet.services.control_plane import (
    AUTH_PARAMETER,
    ORDER_PARAMETER,
    TAG,
    ControlPlaneOrder,
    ensure_auth,
    put_order,
)
from fleet.services.tunnel import free_port
from tests.cloud import finish, until
from tests.fleet.local.conftest import Host, ec2, host, launch
from tests.session_manager_plugin import install

__all__ = ["ec2", "host", "launch"]

SERVER = """
mkdir -p api/work_pools; echo well >api/health; echo '{"status": "READY"}' >api/work_pools/ec2
address=$(fleet-python -c 'from bootstrap.identity import Metadata; print(Metadata().get("local-ipv4"))')
exec fleet-python -m http.server 4200 --bind "$address"
"""
"""Says that it is well, and that its pool has workers; it asks for no auth string, which is Prefect's own business."""


@dataclass
class Laptop:
    """A person's machine."""

    host: Host
    path: str
    port: int

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_"))}
        theirs = {
            "AWS_ENDPOINT_URL": self.host.aws,
            "AWS_ACCESS_KEY_ID": "person",
            "AWS_SECRET_ACCESS_KEY": "person",
            "AWS_DEFAULT_REGION": preset.REGION,
            "PREFECT_API_KEY": "of-another-server",
            "PATH": self.path,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "fleet.cli.main", "connect", "--port", str(self.port), *arguments],
            env=kept | theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def laptop(host: Host, tmp_path: Path) -> Laptop:
    return Laptop(host, f"{install(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}", free_port(0))


@pytest.fixture
def auth(host: Host, ec2: Any, launch: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A control plane that runs, and its auth string."""
    for name, value in {"ENDPOINT_URL": host.aws, "ACCESS_KEY_ID": "person", "SECRET_ACCESS_KEY": "person"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    aws = Aws(preset.REGION)
    put_order(aws, ControlPlaneOrder(volume="vol-0123456789abcdef0", code="s3://bucket/code", code_sha256="0" * 64))
    ensure_auth(aws)
    launch(
        f"export PYTHONPATH={Path(__file__).parents[3]}\n{SERVER}",
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": TAG, "Value": "inspect-fleet"}]}],
    )
    yield str(aws.ssm.get_parameter(Name=AUTH_PARAMETER, WithDecryption=True)["Parameter"]["Value"])
    aws.ssm.delete_parameters(Names=[AUTH_PARAMETER, ORDER_PARAMETER])


def plugins(folder: Path) -> list[int]:
    """The plugins that run for a test of this folder, by their PATH."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if b"session_manager_plugin.py" in command and str(folder).encode() in environment:
            found.append(int(process.name))
    return found


def test_a_command_gets_the_address_and_the_auth_string_and_its_exit_code_is_ours(
    laptop: Laptop, auth: str, tmp_path: Path
) -> None:
    """Nothing of the person's own Prefect gets in, the string is shown nowhere, and no plugin outlives the command."""
    code = (
        "import os, sys, urllib.request as ask; told = os.environ\n"
        "health = ask.build_opener(ask.ProxyHandler({})).open(told['PREFECT_API_URL'] + '/health').read()\n"
        f"good = told['PREFECT_API_AUTH_STRING'] == {auth!r} and 'PREFECT_API_KEY' not in told and health == b'well\\n'\n"
        "print(told['PREFECT_API_URL']); sys.exit(7 if good else 8)"
    )
    done = finish(laptop.start("--", sys.executable, "-c", code), seconds=60)
    assert done.code == 7, done.err
    assert done.out == f"http://127.0.0.1:{laptop.port}/api\n"
    assert auth not in done.out + done.err
    assert plugins(tmp_path) == []


def test_a_session_that_drops_is_replaced_until_ctrl_c(laptop: Laptop, auth: str, tmp_path: Path) -> None:
    """Alone, it prints the addresses and how others read the auth string, and holds on; interrupted, it ends what it began."""
    connected = laptop.start()
    try:
        assert connected.stdout is not None
        assert connected.stdout.readline() == f"Prefect UI   http://127.0.0.1:{laptop.port}\n"
        (first,) = plugins(tmp_path)
        os.kill(first, signal.SIGKILL)
        again = until("a new session", lambda: [one for one in plugins(tmp_path) if one != first])
        assert len(again) == 1
    finally:
        connected.send_signal(signal.SIGINT)
        done = finish(connected, seconds=30)
    assert done.code == 0
    assert AUTH_PARAMETER in done.err
    assert auth not in done.out + done.err
    assert plugins(tmp_path) == []


def test_without_a_control_plane_it_is_one_line_that_says_so(laptop: Laptop) -> None:
    done = finish(laptop.start("--", "true"), seconds=30)
    assert done.code == 1
    assert done.err.startswith(f"error: no running instance in us-east-1 has the tag {TAG}")
    assert done.err.count("\n") == 1


def test_without_the_plugin_it_says_where_to_get_it(laptop: Laptop) -> None:
    laptop.path = "/usr/bin:/bin"
    done = finish(laptop.start(), seconds=30)
    assert done.code == 1
    assert "session-manager-plugin isn't on the PATH: install it" in done.err
