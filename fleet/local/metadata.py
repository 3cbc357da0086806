"""The instance metadata service, version 2: `<endpoint>/<instance id>/latest/…`, each instance under a path of its own.

Clients are pointed at it by AWS_EC2_METADATA_SERVICE_ENDPOINT. The rules are EC2's: a session token from a PUT, no answer
without one (401), tags only where the launch asked for them, credentials as a session named by the instance id. The link-local
address is never bound nor asked.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Protocol

from fleet.local.machines import Credentials, Machine, Machines
from fleet.local.preset import ACCOUNT

TOKEN_SECONDS = range(1, 21_601)
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105  (a header's name)
RENEW_PART = 12
"""New credentials are handed out when a twelfth of the old ones' life is left (EC2: well before their end)."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What EC2 has announced to a spot instance."""

    ends: datetime | None = None
    """When it is interrupted."""
    rebalance: datetime | None = None
    """Since when EC2 recommends to replace it."""


class Notices(Protocol):
    """Where notices are kept."""

    def notice(self, instance: str) -> Notice:
        """The instance's; an empty one for most."""


def stamp(at: datetime) -> str:
    """A time as the service writes it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def entries(machine: Machine, notice: Notice, credentials: Credentials | None) -> dict[str, str]:
    """Everything under `latest/`, by path."""
    data = {
        "ami-id": machine.image,
        "ami-launch-index": str(machine.launch_index),
        "hostname": machine.hostname,
        "instance-id": machine.id,
        "instance-life-cycle": machine.market,
        "instance-type": machine.type,
        "local-hostname": machine.hostname,
        "local-ipv4": machine.private_ip,
        "mac": machine.mac,
        "placement/availability-zone": machine.zone,
        "placement/region": machine.region,
        "reservation-id": machine.reservation,
        "security-groups": "\n".join(machine.security_groups),
    }
    if machine.tags_in_metadata:
        data |= {f"tags/instance/{key}": value for key, value in machine.tags.items()}
    if credentials is not None:
        data["iam/info"] = json.dumps(
            {"Code": "Success", "LastUpdated": stamp(credentials.updated), "InstanceProfileArn": machine.profile}
        )
        data[f"iam/security-credentials/{credentials.role}"] = json.dumps(
            {
                "Code": "Success",
                "LastUpdated": stamp(credentials.updated),
                "Type": "AWS-HMAC",
                "AccessKeyId": credentials.access_key,
                "SecretAccessKey": credentials.secret_key,
                "Token": credentials.token,
                "Expiration": stamp(credentials.expires),
            }
        )
    if notice.ends is not None:
        data["spot/instance-action"] = json.dumps({"action": "terminate", "time": stamp(notice.ends)})
        data["spot/termination-time"] = stamp(notice.ends)
    if notice.rebalance is not None:
        data["events/recommendations/rebalance"] = json.dumps({"noticeTime": stamp(notice.rebalance)})
    identity = {
        "accountId": ACCOUNT,
        "architecture": machine.architecture,
        "availabilityZone": machine.zone,
        "imageId": machine.image,
        "instanceId": machine.id,
        "instanceType": machine.type,
        "pendingTime": stamp(machine.launched),
        "privateIp": machine.private_ip,
        "region": machine.region,
        "version": "2017-09-30",
    }
    return {
        **{f"meta-data/{path}": value for path, value in data.items()},
        "dynamic/instance-identity/document": json.dumps(identity, indent=2),
    }


def look_up(found: Mapping[str, str], path: str) -> str | None:
    """What a GET of `path` answers: a value, or for a folder its listing. None: 404."""
    path = path.rstrip("/")
    if path in found:
        return found[path]
    folder = f"{path}/" if path else ""
    inside = {entry.removeprefix(folder) for entry in found if entry.startswith(folder)}
    # A folder is listed with a slash; the value of a tag may stand beside a folder of its name, so both are kept.
    names = sorted({name.split("/", 1)[0] + ("/" if "/" in name else "") for name in inside})
    return "\n".join(names) if names else None


class Tokens:
    """Session tokens, each good for one instance and for its own time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = Lock()
        self._until: dict[tuple[str, str], float] = {}

    def issue(self, instance: str, seconds: int) -> str:
        """A new token."""
        token = secrets.token_urlsafe(40)
        now = self._now()
        with self._lock:
            self._until = {key: until for key, until in self._until.items() if until > now}
            self._until[instance, token] = now + seconds
        return token

    def good(self, instance: str, token: str) -> bool:
        """Whether the token is this instance's and still lasts."""
        with self._lock:
            return self._until.get((instance, token), 0.0) > self._now()


class MetadataService:
    """Serves all instances' metadata on one loopback port."""

    def __init__(self, machines: Machines, notices: Notices, credential_seconds: Callable[[], int]) -> None:
        self._machines = machines
        self._notices = notices
        self._seconds = credential_seconds
        self._credentials: dict[str, Credentials] = {}
        self._lock = Lock()
        self.tokens = Tokens()
        self._server: _Server | None = None

    def start(self) -> str:
        """Listen; returns the address, to which `/<instance id>` is added."""
        service = self

        class Handler(_Handler):
            owner = service

        self._server = _Server(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, name="metadata", daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def machine(self, instance: str) -> Machine | None:
        """The instance, while it has a metadata service: from its launch until it has ended."""
        try:
            found = self._machines.get(instance)
        except KeyError:
            return None
        return None if found.state in {"terminated", "stopped"} else found

    def answer(self, machine: Machine, path: str) -> bytes | None:
        """The body for a path under `latest/`; None: 404."""
        if path == "user-data":
            return machine.user_data or None
        found = entries(machine, self._notices.notice(machine.id), self._fresh(machine))
        body = look_up(found, path)
        return None if body is None else body.encode()

    def _fresh(self, machine: Machine) -> Credentials | None:
        with self._lock:
            held = self._credentials.get(machine.id)
            seconds = self._seconds()
            if held is None or (held.expires - datetime.now(UTC)).total_seconds() < seconds / RENEW_PART:
                held = self._machines.credentials(machine.id, seconds)
                if held is not None:
                    self._credentials[machine.id] = held
            return held


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        # HTTPServer's own also asks for the host's name, which can take seconds where the resolver is slow.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]


class _Handler(BaseHTTPRequestHandler):
    """`/<instance>/latest/<path>`."""

    owner: MetadataService
    disable_nagle_algorithm = True  # head and body are two writes
    protocol_version = "HTTP/1.1"
    server_version = "EC2ws"
    sys_version = ""

    def do_PUT(self) -> None:
        """A session token, by the rules of IMDSv2."""
        instance, path = self._parts()
        machine = self.owner.machine(instance)
        ttl = self.headers.get(TTL_HEADER, "")
        if machine is None or path != "api/token":
            self._send(404)
        elif not machine.metadata_enabled or self.headers.get("X-Forwarded-For"):
            self._send(403)  # EC2 refuses a request that came through a proxy
        elif not ttl.isdecimal() or int(ttl) not in TOKEN_SECONDS:
            self._send(400)
        else:
            self._send(200, self.owner.tokens.issue(instance, int(ttl)).encode(), ttl=ttl)

    def do_GET(self) -> None:
        """A value or a listing, for those with a token."""
        instance, path = self._parts()
        machine = self.owner.machine(instance)
        if machine is None:
            self._send(404)
        elif not machine.metadata_enabled:
            self._send(403)
        elif not self.owner.tokens.good(instance, self.headers.get(TOKEN_HEADER, "")):
            self._send(401)
        else:
            body = self.owner.answer(machine, path)
            self._send(404 if body is None else 200, body or b"")

    def _parts(self) -> tuple[str, str]:
        _, instance, latest, path = (*self.path.split("?", 1)[0].split("/", 3), "", "", "", "")[:4]
        return instance, path if latest == "latest" else "?"

    def _send(self, status: int, body: bytes = b"", ttl: str | None = None) -> None:
        if length := int(self.headers.get("Content-Length") or 0):
            self.rfile.read(length)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        if ttl is not None:
            self.send_header(TTL_HEADER, ttl)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Nothing: the calls of an instance are not a person's reading."""
