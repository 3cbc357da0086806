"""Session Manager: sessions with instances, which moto doesn't know. What carries a session's bytes is the person's plugin.

An instance can be reached when it runs and has a role: the agent on it can't report without one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

from fleet.local.calls import Call, Environ, StartResponse, refuse
from fleet.local.machines import Machines

OPERATIONS = frozenset({"StartSession", "TerminateSession"})


def answer_session(call: Call, environ: Environ, start: StartResponse, machines: Machines) -> Iterable[bytes]:
    """One of OPERATIONS."""
    request = call.parameters()
    if call.operation == "TerminateSession":
        return _send(start, {"SessionId": request.get("SessionId", "")})
    target = str(request.get("Target", ""))
    if not _connected(target, machines):
        return refuse(
            call, environ, start, code="TargetNotConnected", status=400, message=f"{target} is not connected."
        )
    session = f"local-{secrets.token_hex(9)}"
    stream = f"wss://ssmmessages.{call.region}.amazonaws.com/v1/data-channel/{session}?role=publish_subscribe"
    return _send(start, {"SessionId": session, "TokenValue": secrets.token_urlsafe(60), "StreamUrl": stream})


def _connected(target: str, machines: Machines) -> bool:
    try:
        machine = machines.get(target)
    except KeyError:
        return False
    return machine.state == "running" and machine.profile is not None


def _send(start: StartResponse, answer: dict[str, Any]) -> Iterable[bytes]:
    data = json.dumps(answer).encode()
    start("200 OK", [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(data)))])
    return [data]
