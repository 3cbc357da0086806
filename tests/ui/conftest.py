"""A headless browser, and a Prefect server of its own for tests of forms."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.browser import BrowserAbsent, a_browser
from tests.ui.prefect_ui import PATIENCE_MS, PrefectUI


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The system's Chromium; tests are skipped where there is none, and fail in CI, where there has to be one.

    It ends with this folder's tests: its driver keeps an event loop in the main thread, where others want one of their own.
    """
    with ExitStack() as stack:
        try:
            started = stack.enter_context(a_browser())
        except BrowserAbsent as absent:
            if os.environ.get("CI") == "true":
                pytest.fail(str(absent))
            pytest.skip(str(absent))
        expect.set_options(timeout=PATIENCE_MS)  # five seconds, its own, are short beside an eval on the same cores
        yield started


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prefect server with its UI, a fresh database, and nothing of the user's profile."""
    folder = tmp_path_factory.mktemp("prefect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {
        **own,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",  # the UI asks there; it would guess the default port
        "PREFECT_PROFILES_PATH": str(folder / "profiles.toml"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "DO_NOT_TRACK": "1",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(address, server, log)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def ui(browser: Browser, prefect_server: str) -> Iterator[PrefectUI]:
    """A fresh tab at the server's UI."""
    context = browser.new_context(viewport={"width": 1500, "height": 1050})
    try:
        yield PrefectUI(context.new_page(), prefect_server)
    finally:
        context.close()


def _wait_until_healthy(address: str, server: subprocess.Popen[bytes], log: Path, seconds: float = 180) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/api/health", timeout=5):  # noqa: S310 (loopback)
                return
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"the Prefect server did not come up: {log.read_text()[-2000:]}")
