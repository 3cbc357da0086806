"""A small real metadata service: IMDSv2 as the code under test meets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FakeMetadata:
    """What it answers, and what it saw."""

    values: dict[str, str] = field(default_factory=lambda: {"instance-id": "i-0123456789abcdef0"})
    tokens: list[str] = field(default_factory=list)
    expire_after: int | None = None
    """Questions after which a token is refused."""
    endpoint: str = ""
    asked: int = 0
    token: str | None = None
    """Given instead of a good one."""
    raw: bytes | None = None
    """Said instead of an answer to whatever is asked with a token; what isn't HTTP too."""
    status: int = 200
    """Of what there is."""


@contextmanager
def serving(fake: FakeMetadata) -> Iterator[FakeMetadata]:
    """Serve it on loopback under a path prefix, as the local cloud does."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            fake.tokens.append(f"token-{len(fake.tokens)}" if fake.token is None else fake.token)
            self._answer(200, fake.tokens[-1])

        def do_GET(self) -> None:
            fake.asked += 1
            if fake.raw is not None:
                self.wfile.write(fake.raw)
                return
            token = self.headers.get("X-aws-ec2-metadata-token")
            if not fake.tokens or token != fake.tokens[-1] or fake.asked == fake.expire_after:
                self._answer(401, "")
                return
            value = fake.values.get(self.path.partition("/latest/meta-data/")[2])
            self._answer(404 if value is None else fake.status, value or "")

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.endpoint = f"http://127.0.0.1:{server.server_port}/instance"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
