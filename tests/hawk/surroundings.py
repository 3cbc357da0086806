"""What Hawk's server finds around itself in a cluster: who signs tokens, who knows the models, and the lists of Kubernetes.

One HTTP server on loopback, in a thread. What it is asked and can't answer, it keeps, so that a test can say so.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwk, jwt

from tests.hawk.releases import Release, releases

AUDIENCE = "hawk-api"
ACCESS = "model-access-public"
JOB_ID = "inspect-ai.metr.org/job-id"
JOB_TYPE = "inspect-ai.metr.org/job-type"
COMPONENT = "app.kubernetes.io/component"


class Surroundings(ThreadingHTTPServer):
    """The server."""

    daemon_threads = True

    def __init__(self, installed: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.installed = installed
        self.unknown: list[str] = []
        """Requests that it had no answer for."""
        self.key = jwk.RSAKey.generate_key(2048, {"kid": "harness", "alg": "RS256", "use": "sig"})

    @property
    def address(self) -> str:
        """Without a slash at its end."""
        return f"http://127.0.0.1:{self.server_port}"

    def token(self, *, who: str = "ada", seconds: int = 3600) -> str:
        """An access token that Hawk accepts for so long."""
        now = int(time.time())
        claims = {"iss": self.address, "aud": AUDIENCE, "sub": who, "email": f"{who}@localhost", "iat": now}
        return jwt.encode({"alg": "RS256", "kid": "harness"}, {**claims, "exp": now + seconds}, self.key)

    def answer(self, path: str, query: dict[str, list[str]]) -> dict[str, Any] | str | None:
        """To one GET: a document, or a runner's output; None: there is nothing."""
        selected = [one.partition("=") for one in query.get("labelSelector", [""])[0].split(",")]
        labels = {label: value for label, _, value in selected if value}
        runners = labels.get(COMPONENT, "runner") == "runner"
        found = list(releases(self.installed, labels.get(JOB_ID))) if runners else []
        if path == "/jwks":
            return {"keys": [self.key.as_dict(private=False)]}
        if path == "/model_groups":
            return {"groups": dict.fromkeys(query.get("model", []), ACCESS), "labs": {}, "dead": []}
        if path == "/kubernetes/apis/":  # nothing beyond Kubernetes itself, such as a metrics server
            return {"apiVersion": "v1", "kind": "APIGroupList", "groups": []}
        if path == "/kubernetes/api/v1/pods":
            return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [_pod(one) for one in found]}
        if path == "/kubernetes/apis/batch/v1/jobs":
            return {"apiVersion": "batch/v1", "kind": "JobList", "metadata": {}, "items": [_job(one) for one in found]}
        if path.startswith("/kubernetes/api/v1/") and path.endswith("/log"):
            return next((_stamped(one) for one in found if path.endswith(f"/{_pod_name(one)}/log")), None)
        if path.startswith("/kubernetes/api/v1/"):  # config maps, events, nodes: there are none
            return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []}
        self.unknown.append(path)
        return None


def _pod_name(release: Release) -> str:
    return f"{release.name}-pod"


def _stamped(release: Release) -> str:
    """The runner's output with a time before each line, as a kubelet gives it."""
    lines = release.output.splitlines()
    return "".join(f"2026-01-01T00:00:00.{number:06}Z {line}\n" for number, line in enumerate(lines))


def _labels(release: Release) -> dict[str, str]:
    return {JOB_ID: release.name, JOB_TYPE: release.values["jobType"], COMPONENT: "runner"}


def _pod(release: Release) -> dict[str, Any]:
    return {
        "metadata": {
            "name": _pod_name(release),
            "namespace": release.values["runnerNamespace"],
            "labels": _labels(release),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"name": "inspect-eval-set"}]},
        "status": {"phase": release.phase, "conditions": [], "containerStatuses": []},
    }


def _job(release: Release) -> dict[str, Any]:
    ended = {"Succeeded": "Complete", "Failed": "Failed"}.get(release.phase)
    conditions = [{"type": ended, "status": "True"}] if ended else []
    about = {"name": release.name, "namespace": release.values["runnerNamespace"], "labels": _labels(release)}
    return {"metadata": about, "status": {"conditions": conditions}}


class _Handler(BaseHTTPRequestHandler):
    server: Surroundings

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        found = self.server.answer(where.path, parse_qs(where.query))
        body = found if isinstance(found, str) else json.dumps(found or {"kind": "Status", "code": 404})
        data = body.encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def surroundings(installed: Path) -> Iterator[Surroundings]:
    """The server, for as long as the block runs."""
    server = Surroundings(installed)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
