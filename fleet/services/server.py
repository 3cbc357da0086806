"""The Prefect server: API, UI and services in one process.

Run as `python -m fleet.services.launcher fleet.services.server FD`, where FD is a listening socket that whoever starts it has
opened. So the port is known before the server is, and it stays the same when the server is started again: a request made
meanwhile waits instead of failing.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence

import uvicorn
from prefect.server.api.server import create_app
from prefect.settings import get_current_settings

from fleet.services.turns import take_turns


class AnnouncedServer(uvicorn.Server):
    """A server that says on stdout when it answers."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then print one JSON line with the address."""
        await super().startup(sockets)
        print(json.dumps({"prefect": get_current_settings().api.url}), flush=True)  # noqa: T201, whoever started it reads it


def main(arguments: Sequence[str]) -> None:
    """Serve on the listening socket whose number is the argument, until a signal."""
    (fd,) = arguments
    take_turns()
    api = get_current_settings().server.api
    config = uvicorn.Config(
        create_app(final=True),
        log_level="warning",
        timeout_keep_alive=api.keepalive_timeout,
        timeout_graceful_shutdown=2,
    )
    AnnouncedServer(config).run(sockets=[socket.socket(fileno=int(fd))])
