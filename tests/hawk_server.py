"""A Hawk deployment that follows a script: a real HTTP server on loopback with the part of Hawk's API that we use.

It answers as Hawk 3.7.2 does where there is no fault: forms of errors, ids, what a launch of an id that exists does. States pass
by one at each look at the job's status. Whatever it is asked is on record.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "token-1"
ALIVE = ("pending", "running", "waiting_for_capacity", "importing", "stuck")
PHASES = {"running": "Running", "waiting_for_capacity": "Pending", "stuck": "Pending", "failed": "Failed"}
"""Of a runner's pod, by the state that Hawk makes of it."""


@dataclass(frozen=True)
class State:
    """What Hawk says of an eval set at one look."""

    status: str
    done: int = 0
    total: int = 0
    live: str = ""
    """What the eval set's own status says, from its logs; empty: the same."""
    trouble: str = ""
    waits: str = ""
    """The queue's message, where the queue holds the runner back."""
    asking: int = 0


@dataclass(frozen=True)
class Fault:
    """What a call is answered instead."""

    status: int
    body: str = ""
    kind: str = "application/json"
    """Content type; `hang up`: the connection is closed without an answer."""
    cut: int = 0
    """So many bytes of its end don't come."""


def problem(status: int, title: str, detail: str) -> Fault:
    """Hawk's own form of an error."""
    body = {"title": title, "status": status, "detail": detail, "instance": "http://hawk/eval_sets/"}
    return Fault(status, json.dumps(body), "application/problem+json")


def detail(status: int, said: str | list[dict[str, Any]]) -> Fault:
    """FastAPI's form of an error."""
    return Fault(status, json.dumps({"detail": said}))


HANG_UP = Fault(0, kind="hang up")


@dataclass
class Launch:
    """What becomes of an eval set when it is launched."""

    states: Sequence[State | str] = ("pending", "running", "complete")
    logs: Mapping[str, bytes] = field(default_factory=dict)
    """What lies there when it is over, besides what was there before: content by file name."""


@dataclass
class EvalSetOnHawk:
    """One eval set and where it is in its script."""

    states: list[State]
    logs: dict[str, bytes]
    config: dict[str, Any] | None
    coming: Mapping[str, bytes] = field(default_factory=dict)
    shown: State | None = None

    @property
    def now(self) -> State:
        """The state that was seen last."""
        return self.shown or self.states[0]

    def look(self) -> State:
        """The state now; the next look sees the next one."""
        self.shown = self.states[0]
        if len(self.states) > 1:
            self.states.pop(0)
        self.settle(self.shown)
        return self.shown

    def become(self, status: str) -> None:
        """Be so from now on."""
        self.states, self.shown = [State(status)], None
        self.settle(self.now)

    def settle(self, now: State) -> None:
        """Its logs lie there when it is over."""
        if now.status not in ALIVE or now.status == "importing" or now.live == "complete":
            self.logs |= self.coming
            self.coming = {}


class HawkServer:
    """The deployment: its script, and the record of what it was asked."""

    def __init__(self) -> None:
        self.tokens = {TOKEN}
        """Those that are good."""
        self.launches: list[Launch] = []
        """What the next ones become, in turn; one more than these is refused."""
        self.sets: dict[str, EvalSetOnHawk] = {}
        self.calls: list[str] = []
        """Method and path of all that was asked, refused or not; no queries."""
        self.posted: list[dict[str, Any]] = []
        """The launches that were done, as they were sent."""
        self.stops: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.runner_log: list[str] = []
        self.address = ""
        self.slow = 0.0
        """Seconds before each answer."""
        self._faults: list[tuple[str, Fault]] = []
        self._lost: list[str] = []
        self._lock = threading.Lock()

    def fail(self, call: str, fault: Fault, times: int = 1) -> None:
        """Answer the next calls so that have `call` in their method and path, as in `POST /eval_sets`."""
        self._faults += [(call, fault)] * times

    def forgive(self) -> None:
        """Answer as it should again."""
        self._faults.clear()

    def lose(self, call: str) -> None:
        """Do as the next such call asks, and hang up without an answer."""
        self._lost.append(call)

    def has(self, eval_set: str, states: Sequence[State | str], logs: Mapping[str, bytes] | None = None) -> None:
        """It knows this eval set from before."""
        self.sets[eval_set] = EvalSetOnHawk(_states(states), dict(logs or {}), {"tasks": []})

    def asked(self, call: str) -> int:
        """How often."""
        return sum(call in one for one in self.calls)

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Fault | bytes:
        """What a call is answered: JSON, the bytes of a log, or an error."""
        parts = urlsplit(target)
        call = f"{method} {parts.path}"
        with self._lock:
            self.calls.append(call)
            for index, (name, fault) in enumerate(self._faults):
                if name in call:
                    del self._faults[index]
                    return fault
            query, sent = parse_qs(parts.query), json.loads(body) if body else None
            answer = self._answer(call, parts.path, query, headers, sent)
            for name in [name for name in self._lost if name in call]:
                self._lost.remove(name)
                return HANG_UP
            return answer

    def _answer(
        self, call: str, path: str, query: Mapping[str, list[str]], headers: Mapping[str, str], sent: Any
    ) -> Fault | bytes:
        token = headers.get("Authorization", "")
        if path.startswith("/store/"):
            if token:
                return Fault(400, "<Error>InvalidArgument: Only one auth mechanism allowed</Error>", "application/xml")
            eval_set, _, name = unquote(path.removeprefix("/store/")).partition("/")
            return self.sets[eval_set].logs[name]
        if path == "/auth/config":
            return _json({"client_id": "hawk", "log_viewer_url": "https://viewer.hawk.example.org"})
        if token.removeprefix("Bearer ") not in self.tokens:
            return detail(401, "Your access token has expired. Please log in again")
        if call == "POST /eval_sets/":
            return self._launch(sent)
        if call == "GET /view/logs/logs":
            return self._list(query["log_dir"][0])
        if call == "POST /view/logs/log-download-urls":
            return self._sign(sent["logs"])
        _, kind, *names = path.split("/")
        eval_set = unquote(names[1] if kind == "monitoring" else names[0])
        if (known := self.sets.get(eval_set)) is None:
            return detail(404, "Job not found.")
        if path.endswith("/job-status"):
            return _job_status(known.look())
        if path.endswith("/eval-set-status"):
            return _eval_set_status(eval_set, known.now)
        if path.endswith("/logs"):
            newest = [_log_line(line) for line in reversed(self.runner_log)]
            return _json({"entries": newest[: int(query["limit"][0])]})
        if path.endswith("/stop"):
            self.stops.append(sent)
            known.become("complete")
            return b"null"
        if call.startswith("DELETE"):
            known.become("complete" if known.logs else "deleted")
            return b"null"
        return detail(404, "Not Found")

    def _launch(self, sent: dict[str, Any]) -> Fault | bytes:
        config, eval_set = sent["eval_set_config"], sent["eval_set_id"]
        if eval_set is not None and eval_set not in self.sets:
            return detail(403, "You do not have permission to resume this eval set.")
        eval_set = eval_set or config["eval_set_id"]
        before = self.sets.get(eval_set)
        if before is not None and before.now.status in ALIVE:
            said = f"A job with ID '{eval_set}' already exists and is still running, so it can't be relaunched."
            return problem(409, "Job already exists", said)
        self.posted.append(sent)
        launch = self.launches.pop(0)
        logs = before.logs if before else {}
        saved = config or (before.config if before else None)
        self.sets[eval_set] = EvalSetOnHawk(_states(launch.states), logs, saved, launch.logs)
        return _json({"eval_set_id": eval_set, "warnings": self.warnings})

    def _list(self, eval_set: str) -> Fault | bytes:
        if eval_set not in self.sets:
            return detail(403, "Forbidden")
        files = [{"name": f"{eval_set}/{name}", "size": len(log)} for name, log in self.sets[eval_set].logs.items()]
        return _json({"log_dir": eval_set, "files": files})

    def _sign(self, names: list[str]) -> Fault | bytes:
        if len(names) > 1_000:
            return detail(422, [{"loc": ["body", "logs"], "msg": "List should have at most 1000 items"}])
        urls = [{"url": f"{self.address}/store/{name}?signature=hush", "filename": name} for name in names]
        return _json({"urls": urls})


def a_token(**claims: object) -> str:
    """A token that carries these claims, signed by nobody."""
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


@contextmanager
def hawk_server() -> Iterator[HawkServer]:
    """The deployment, answering while the block lasts."""
    deployment = HawkServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(deployment.slow)
            answer = deployment.answer(self.command, self.path, dict(self.headers), body)
            if answer is HANG_UP:
                self.close_connection = True
                return
            fault = answer if isinstance(answer, Fault) else Fault(200)
            content = fault.body.encode() if isinstance(answer, Fault) else answer
            self.send_response(fault.status)
            self.send_header("Content-Type", fault.kind)
            self.send_header("Content-Length", str(len(content) + fault.cut))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = bool(fault.cut)

        def log_message(self, *_: object) -> None:
            """Not on the test's own output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    deployment.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield deployment
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def eval_log(
    task: str,
    model: str,
    *,
    task_id: str = "",
    args: Mapping[str, Any] | None = None,
    told: bool = True,
    status: str = "success",
    created: str = "2026-01-01T10:00:00+00:00",
    samples: int = 2,
    done: int | None = None,
    errors: int = 0,
    error: str = "",
    accuracy: float = 1.0,
) -> bytes:
    """A log as Inspect lays one out, as far as a report reads it. `started` is one whose runner ended in the middle.

    `told`: which arguments were given, as newer releases of Inspect say.
    """
    spec = {
        "eval_id": f"eval-{task_id or task}",
        "task_id": task_id or f"{task}-{model}",
        "task": task,
        "task_registry_name": task,
        "task_args": {"shots": 0, **(args or {})},
        "task_args_passed": dict(args or {}) if told else None,
        "created": created,
        "model": model,
        "dataset": {"sample_ids": list(range(1, samples + 1))},
        "config": {"epochs": 1},
    }
    done = samples if done is None else done
    results = {
        "total_samples": done,
        "completed_samples": done - errors,
        "scores": [{"name": "match", "metrics": {"accuracy": {"name": "accuracy", "value": accuracy}}}],
    }
    header = {"version": 2, "status": status, "eval": spec, "results": results}
    if error:
        header["error"] = {"message": error}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        file.writestr("_journal/start.json", json.dumps({"version": 2, "eval": spec}))
        if status != "started":
            file.writestr("header.json", json.dumps(header))
    return target.getvalue()


def _states(states: Sequence[State | str]) -> list[State]:
    return [State(state) if isinstance(state, str) else state for state in states]


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _job_status(now: State) -> bytes:
    admission = {"state": "queued", "queue": "q", "message": now.waits} if now.waits else None
    phase = PHASES.get(now.status)
    pod = {"name": "runner-x", "namespace": "inspect", "phase": phase, "component": "runner"}
    return _json(
        {
            "job_type": "eval_set",
            "status": now.status,
            "pending_interactions": now.asking,
            "pod_status": {"pods": [pod] if phase else []},
            "admission": admission,
            "details": {
                "import_summary": None,
                "warehouse_sample_count": 0,
                "trouble_reason": now.trouble or None,
                "of_a_newer_hawk": 1,
            },
        }
    )


def _eval_set_status(eval_set: str, now: State) -> bytes:
    counts = {"total": now.total, "completed": now.done, "running": min(1, now.total - now.done)}
    task = {"task_name": "t", "task_id": "1", "log_file": "2026_t_1.eval", "progress": counts}
    data = {
        "job_id": eval_set,
        "status": now.live or now.status,
        "trouble_reason": now.trouble or None,
        "progress": counts,
    }
    return _json({"data": {**data, "tasks": [task] if now.total else []}, "etag": "e"})


def _log_line(said: str) -> dict[str, str]:
    return {"timestamp": "2026-01-01T10:00:00Z", "service": "runner", "message": said}
