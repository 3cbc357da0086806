"""A headless browser at the UI of the local cloud's Prefect server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect

from tests.cloud import CloudUnderTest
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


@pytest.fixture
def ui(browser: Browser, shared_cloud: CloudUnderTest) -> Iterator[PrefectUI]:
    """A fresh tab at the cloud's UI."""
    context = browser.new_context(viewport={"width": 1500, "height": 1050})
    try:
        yield PrefectUI(context.new_page(), shared_cloud.local.prefect_ui)
    finally:
        context.close()
