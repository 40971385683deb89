"""Every page, in both themes, for people who use a keyboard, a screen reader or other colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echoless.testkit.admin import Admin
from tests.console.story import tell
from tests.console.tools import AXE
from tests.console.until import until
from tests.support.echoless import Echoless
from tests.toolchain import require

if TYPE_CHECKING:
    from tests.console.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = {
    "live": "event-list tr[data-kind=refused]",
    "producers/orders/0": ".chosen .line",
    "diagram": "drawn-diagram .cross",
    "faults": "details.texts",
    "topics": "main table",
    "groups": "main .dim",
    "transactions": "main p.dim",
    "broker": "line-plot path",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Echoless, int]]:
    """A broker on which one of everything has happened, with a fault that is active."""
    require("axe-core", "chromium")
    broker = Echoless(Path(tmp_path_factory.mktemp("told")))
    broker.start()
    producer_id = tell(broker)
    Admin(broker.admin_address).post(
        "/faults", {"name": "later", "match": {"topic": "x"}, "action": "twice"}
    )
    yield broker, producer_id
    broker.terminate()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible(
    told: tuple[Echoless, int], open_page: OpenPage, theme: str
) -> None:
    """No violation that axe-core knows of; what has to be there is there."""
    broker, producer_id = told
    page = open_page(broker, color_scheme=theme)
    for name, awaited in PAGES.items():
        query = f"?id={producer_id}" if name.startswith("producers") else ""
        page.evaluate("(hash) => { location.hash = hash; }", f"#/{name}{query}")
        page.locator(awaited).first.wait_for(state="attached")
        if name == "live":
            page.locator(awaited).last.click()
        if name == "faults":
            page.get_by_text("A rule of your own").click()
            page.locator("details.texts summary").first.click()
        page.locator("#strip").wait_for()
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        violations = [
            (one["id"], [node["html"][:200] for node in one["nodes"]])
            for one in found["violations"]
        ]
        assert violations == [], f"{name}, {theme}"


def test_everything_is_reached_by_keyboard(told: tuple[Echoless, int], open_page: OpenPage) -> None:
    """Digits open the pages, arrows choose an event, and the chosen one is explained."""
    broker, _ = told
    page = open_page(broker)
    page.locator("event-list tr[data-kind=refused]").first.wait_for()
    page.locator("event-list").focus()
    page.keyboard.press("ArrowDown")
    page.locator("aside h2").wait_for()
    assert page.locator("tr.selected").count() == 1
    page.keyboard.press("ArrowDown")
    until(page, "document.querySelector('tr.selected').getAttribute('aria-rowindex') === '3'")
    page.keyboard.press("4")
    page.locator("h1", has_text="Faults").wait_for()
    assert page.locator("nav a[aria-current=page]").inner_text() == "Faults"


def test_nothing_moves_for_those_who_ask_for_stillness(
    told: tuple[Echoless, int], open_page: OpenPage
) -> None:
    """No transition runs with `prefers-reduced-motion`."""
    broker, _ = told
    page = open_page(broker, reduced_motion="reduce")
    page.locator("button").first.wait_for()
    durations = page.evaluate(
        "[...document.querySelectorAll('*')].map((one) => getComputedStyle(one).transitionDuration)"
    )
    assert set(durations) == {"0s"}
