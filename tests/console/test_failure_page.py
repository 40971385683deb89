"""The page about a failed test in a browser: it is drawn, and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echoless.testkit.failure_page import render_page
from tests.testkit.test_failure_page import EVIL, decision, rule, story

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, pytest.mark.browser]


def test_page_is_drawn_without_asking_anyone(browser: Browser, tmp_path: Path) -> None:
    """No request, no dialog, no complaint of the browser; the diagram has a size, and ids of others are text."""
    path = tmp_path / "page.html"
    events = [decision(0, client_id=EVIL, topic=EVIL), decision(1)]
    told = story(events=events, rules=[rule(EVIL)], log=EVIL)
    path.write_text(render_page(EVIL, EVIL, [told]))
    page = browser.new_context().new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    assert (asked, said) == ([path.as_uri()], [])
    box = page.locator("svg").bounding_box()
    assert box is not None
    assert box["width"] > 300
    assert box["height"] > 100
    assert EVIL in page.locator("h1").inner_text()
    assert page.locator("td", has_text="never struck").count() == 1
    page.context.close()
