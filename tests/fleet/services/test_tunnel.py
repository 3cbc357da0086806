"""The tunnel's own judgement of the server at its other end."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import cast

import pytest

from fleet.aws.session import Aws
from fleet.services import tunnel as services_tunnel
from fleet.services.tunnel import AuthRefused, NoAnswer, NoWorkers, PluginSilent, Tunnel, free_port, version_of
from tests.session_manager_plugin import install

AUTH = "fleet:the-auth-string"


class Server(HTTPServer):
    pool: tuple[int, bytes] = (404, b"{}")


class Answers(BaseHTTPRequestHandler):
    """`/api/health` for everybody, the pool for those who say the auth string."""

    def do_GET(self) -> None:
        status, body = cast("Server", self.server).pool
        said = self.headers.get("Authorization", "")
        if self.path == "/api/health":
            status, body = 200, b"true"
        elif said != f"Basic {base64.b64encode(AUTH.encode()).decode()}":
            status, body = 401, b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answers) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()


@pytest.fixture
def tunnel(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tunnel:
    monkeypatch.setenv("PATH", str(install(tmp_path)))
    return Tunnel(Aws("us-east-1"), port=server.server_port, say=lambda _: None)


def test_workers_are_there_when_the_pool_says_so(server: Server, tunnel: Tunnel) -> None:
    assert tunnel.answers()
    for pool, there in [
        ((404, b"{}"), False),
        ((503, b""), False),
        ((200, b"not JSON"), False),
        ((200, b'{"status": "NOT_READY"}'), False),
        ((200, b'{"status": "READY"}'), True),
    ]:
        server.pool = pool
        assert tunnel._has_workers(AUTH) is there


def test_an_auth_string_that_was_changed_is_told_at_once(tunnel: Tunnel) -> None:
    with pytest.raises(AuthRefused, match="refuses the auth string in SSM") as refused:
        tunnel.wait_for_workers("fleet:another")
    assert "another" not in str(refused.value).replace("another one", "")


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (
            NoAnswer(region="eu-west-1", instance="i-1", seconds=300.0, said=""),
            "aws ec2 get-console-output --latest --output text --instance-id i-1 --region eu-west-1",
        ),
        (
            NoWorkers(region="eu-west-1", instance="i-1", seconds=300.0),
            "aws ec2 get-console-output --latest --output text --instance-id i-1 --region eu-west-1",
        ),
        (
            AuthRefused(region="eu-west-1", instance="i-1"),
            "aws ec2 terminate-instances --instance-ids i-1 --region eu-west-1",
        ),
    ],
    ids=["no answer", "no workers", "auth refused"],
)
def test_what_a_person_is_told_to_type_works_as_it_is_told(error: Exception, command: str) -> None:
    """A shell's own region may be another one than `fleet connect --region` was given."""
    assert f"`{command}`" in str(error)


def test_a_port_that_is_taken_gives_way_to_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = taken.getsockname()[1]
        assert free_port(wanted) != wanted
    assert free_port(wanted) == wanted


@pytest.mark.timeout(30)
def test_a_plugin_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services_tunnel, "VERSION_SECONDS", 0.1)
    program = tmp_path / "session-manager-plugin"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(
        PluginSilent, match=r"--version` gave no answer within 0\.1 s: install session-manager-plugin anew"
    ):
        version_of(str(program))
