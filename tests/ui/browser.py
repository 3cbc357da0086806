"""The system's Chromium, without a screen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

FLAGS = [
    "--no-sandbox",  # tests run as root in CI
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Prefect's UI asks a tracker of its maker at each page, wherever it is served from; here no name is looked up at all.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class BrowserAbsent(LookupError):
    """No Chromium on this machine."""


@contextmanager
def a_browser() -> Iterator[Browser]:
    """A running browser. BrowserAbsent."""
    chromium = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
    if chromium is None:
        raise BrowserAbsent("no Chromium on this machine (.ci/prepare installs one)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            yield started
        finally:
            started.close()
