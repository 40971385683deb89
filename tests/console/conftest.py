"""A broker, a Chromium, and a page that keeps a list of everything it should not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.echoless import Echoless
from tests.toolchain import require

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright, which downloads none.

    For one file of tests, because Playwright runs an event loop in this thread until it ends.
    """
    require("chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        yield launched
        launched.close()


OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens the console of a broker; at the end, no page has failed or asked another host."""
    contexts = []
    problems: list[str] = []

    def opened(broker: Echoless, hash_: str = "#/live", **options: object) -> Page:
        context = browser.new_context(viewport={"width": 1360, "height": 820}, **options)
        contexts.append(context)
        return tab(context.new_page(), broker, hash_)

    def tab(page: Page, broker: Echoless, hash_: str) -> Page:
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("request", lambda request: look(request, broker))
        page.goto(f"http://{broker.admin_address}/console{hash_}")
        return page

    def look(request: Request, broker: Echoless) -> None:
        if not request.url.startswith((f"http://{broker.admin_address}/", "blob:", "data:")):
            problems.append(f"asked elsewhere: {request.url}")

    opened.tab = tab  # type: ignore[attr-defined]
    yield opened
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Echoless]:
    """A broker in a process of its own."""
    require("chromium")
    started = Echoless(tmp_path)
    started.start()
    yield started
    started.terminate()
