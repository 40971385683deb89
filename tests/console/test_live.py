"""The Live page: what a producer does is seen at once, whatever it calls itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from echoless.testkit.native import Native
from tests.console.story import Sender, tell
from tests.console.until import until
from tests.support.echoless import Echoless

if TYPE_CHECKING:
    from tests.console.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=document.body.remove()>"


def test_a_batch_of_a_real_producer_appears(broker: Echoless, open_page: OpenPage) -> None:
    """The row says who sent which batch where, and what became of it."""
    page = open_page(broker)
    page.locator("#link[data-state=live]").wait_for()
    settings = {"bootstrap.servers": broker.kafka_address, "enable.idempotence": True}
    producer = Producer({**settings, "client.id": "billing"})
    producer.produce("orders", b"one")
    producer.flush()
    row = page.locator("event-list tr[data-kind=stored]")
    row.wait_for()
    text = row.inner_text()
    assert "billing" in text
    assert "orders-0" in text
    assert "at offset 0" in text


def test_a_batch_is_shown_within_a_second(broker: Echoless, open_page: OpenPage) -> None:
    """Measured by the clock of the broker and of the page, which are the same: the best of several."""
    page = open_page(broker)
    page.locator("#link[data-state=live]").wait_for()
    page.evaluate(
        """() => {
            window.delays = [];
            const seen = new Set();
            new MutationObserver(() => {
                for (const row of document.querySelectorAll('event-list tr')) {
                    if (!row.event?.number || seen.has(row.event.number)) continue;
                    seen.add(row.event.number);
                    window.delays.push(Date.now() - row.event.time_ms);
                }
            }).observe(document.querySelector('event-list'), { subtree: true, childList: true, characterData: true });
        }"""
    )
    Native(broker.native_address).create_topic("orders")
    sender = Sender(broker, "orders")
    for turn in range(20):
        assert sender.send(turn, 1) == "NONE"
        time.sleep(0.05)
    sender.close()
    until(page, "window.delays.length >= 20")
    assert min(page.evaluate("window.delays")) < 1000


def test_a_refusal_shows_the_window_it_was_judged_by(broker: Echoless, open_page: OpenPage) -> None:
    """The missing sequences and the batch that came too early, as cells."""
    tell(broker)
    page = open_page(broker)
    page.get_by_label("Which events").select_option("refused")
    page.locator("event-list tr[data-kind=refused]").last.click()
    line = page.locator("aside .line").get_attribute("aria-label")
    assert (
        line
        == "stored 0 to 2, stored 3 to 5, stored 6 to 8, stored 9 to 11, missing 12 to 14, refused 15 to 17"
    )


def test_a_client_id_stays_text(broker: Echoless, open_page: OpenPage) -> None:
    """A client may call itself anything: it is shown, never run."""
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_address,
            "enable.idempotence": True,
            "client.id": HOSTILE,
        }
    )
    producer.produce("orders", b"one")
    producer.flush()
    page = open_page(broker)
    row = page.locator("event-list tr[data-kind=stored]")
    row.wait_for()
    assert HOSTILE in row.inner_text()
    row.click()
    assert page.locator("img").count() == 0
    assert page.locator("header").count() == 1


def test_pausing_and_filtering_by_keyboard(broker: Echoless, open_page: OpenPage) -> None:
    """Space holds the list, the slash leads to the filter, and the address keeps what was asked for."""
    tell(broker)
    page = open_page(broker)
    page.locator("event-list tr[data-kind=refused]").first.wait_for()
    page.locator("body").press("Space")
    button = page.get_by_role("button", name="Continue")
    button.wait_for()
    rows = page.locator("event-list tr[data-kind]")
    newest = rows.first.inner_text()
    Native(broker.native_address).create_topic("later")
    sender = Sender(broker, "later")
    assert sender.send(0) == "NONE"
    sender.close()
    page.get_by_role("button", name="Continue (1 new)").wait_for()
    assert rows.first.inner_text() == newest
    page.locator("body").press("Space")
    page.locator("event-list tr", has_text="later-0").wait_for()
    page.locator("body").press("/")
    page.keyboard.type("payments-0")
    until(page, "document.querySelectorAll('event-list tr[data-kind]').length === 12")
    assert page.url.endswith("#/live?filter=payments-0")
