"""Waits for something in a page, in spite of a policy that forbids Playwright's own `wait_for_function`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

_PATIENCE_S = 60.0
_LOOK_EVERY_MS = 25


def until(page: Page, expression: str) -> Any:
    """The first value of the JavaScript expression that counts as true."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        value = page.evaluate(expression)
        if value:
            return value
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(_LOOK_EVERY_MS)
