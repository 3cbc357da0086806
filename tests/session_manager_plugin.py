"""A stand-in for AWS's session-manager-plugin: called as that one is, it forwards a port of this machine to a host and port.

The local cloud's instances have loopback addresses, so that nothing but TCP lies between. `install` puts it on a PATH.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

VERSION = "1.2.707.0"
ANSWER = "AWS_SSM_START_SESSION_RESPONSE"


def install(folder: Path) -> Path:
    """An executable `session-manager-plugin` in `folder`, which is answered."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "session-manager-plugin"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    program.chmod(0o755)
    return folder


def main(arguments: list[str]) -> None:
    if arguments == ["--version"]:
        sys.stdout.write(f"{VERSION}\n")
        return
    answer, _region, operation, _profile, request, _endpoint = arguments
    assert operation == "StartSession"
    assert answer == ANSWER, "a token must not stand among the arguments"
    opened = json.loads(os.environ[ANSWER])
    assert opened["TokenValue"]
    assert opened["StreamUrl"].startswith("wss://")
    asked = json.loads(request)
    assert asked["DocumentName"] == "AWS-StartPortForwardingSessionToRemoteHost"
    host, port, local = (asked["Parameters"][name][0] for name in ("host", "portNumber", "localPortNumber"))
    with socket.create_server(("127.0.0.1", int(local)), backlog=64) as listener:
        sys.stdout.write(f"Port {local} opened for sessionId {opened['SessionId']}.\n")
        while True:
            near, _ = listener.accept()
            threading.Thread(target=join, args=(near, host, int(port)), daemon=True).start()


def join(near: socket.socket, host: str, port: int) -> None:
    """One connection, both ways, until either side ends it."""
    try:
        far = socket.create_connection((host, port), timeout=10)
    except OSError:
        near.close()
        return
    far.settimeout(None)
    back = threading.Thread(target=copy, args=(far, near), daemon=True)
    back.start()
    copy(near, far)
    back.join()
    near.close()
    far.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


if __name__ == "__main__":
    main(sys.argv[1:])
