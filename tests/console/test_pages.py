"""Each page shows what happened, and the faults can be clicked."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from echoless.testkit.admin import Admin
from echoless.testkit.native import Native
from tests.console.story import Sender, tell
from tests.console.until import until
from tests.support.echoless import REPOSITORY, Echoless

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.console.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RANGED = {
    "name": "ranged",
    "match": {"api": "produce", "topic": "it's", "base_sequence": "3-9"},
    "schedule": {"skip": 1, "times": 2, "probability": 0.5, "seed": 7, "duration_ms": 60000},
    "action": {"type": "delay_response", "ms": [100, 300]},
}


def test_a_clicked_fault_loses_exactly_one_acknowledgement(
    broker: Echoless, open_page: OpenPage
) -> None:
    """The strip warns of it, the real producer repeats, the record is stored once, the diagram has the cross."""
    page = open_page(broker, "#/faults")
    button = page.get_by_role("button", name="Lose the next acknowledgement")
    button.click()
    page.locator("#strip", has_text="FAULTS ACTIVE: 1").wait_for()
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_address,
            "enable.idempotence": True,
            "socket.timeout.ms": 1000,
        }
    )
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    producer.produce("orders", b"two")
    assert producer.flush(30) == 0
    page.locator("#strip").wait_for(state="hidden")
    assert page.locator("td.n b").first.inner_text() == "1"
    (topic,) = Admin(broker.admin_address).get("/topics")["topics"]
    assert topic["partitions"][0]["log_end_offset"] == 2
    events = Admin(broker.admin_address).get("/decisions")
    assert [one["action"] for one in events["faults"]] == ["drop_response"]
    page.goto(f"http://{broker.admin_address}/console#/diagram")
    page.locator("drawn-diagram .cross").wait_for()
    assert page.locator("drawn-diagram .cross").count() == 1
    page.goto(f"http://{broker.admin_address}/console#/live")
    page.locator("event-list tr[data-kind=repeat]").wait_for()


def test_a_rule_can_be_taken_elsewhere(broker: Echoless, open_page: OpenPage) -> None:
    """The texts shown as curl, command and TOML make the same rule again."""
    admin = Admin(broker.admin_address)
    added = admin.post("/faults", RANGED)["rules"][0]
    page = open_page(broker, "#/faults")
    page.locator("details.texts summary").click()
    curl, command, toml = page.locator("details.texts pre").all_inner_texts()
    assert tomllib.loads(toml) == {"rules": [RANGED]}
    for words in (shlex.split(curl), [sys.executable, "-m", "echoless", *shlex.split(command)[1:]]):
        admin.delete("/faults")
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert admin.get("/faults")["rules"] == [{**added, "hits": 0, "seen": 0}]


def test_the_form_makes_a_rule(broker: Echoless, open_page: OpenPage) -> None:
    """Its actions and fields are the broker's own; what is impossible is refused with the broker's words."""
    page = open_page(broker, "#/faults")
    page.get_by_text("A rule of your own").click()
    page.get_by_label("action", exact=True).select_option("delay_response")
    page.get_by_label("ms", exact=True).fill("100-300")
    page.get_by_label("topic", exact=True).fill("orders")
    page.get_by_role("button", name="Add the rule").click()
    page.locator("tbody th", has_text="fault-1").wait_for()
    (rule,) = Admin(broker.admin_address).get("/faults")["rules"]
    assert rule["action"] == {"type": "delay_response", "ms": [100, 300]}
    assert rule["match"] == {"topic": "orders"}
    page.get_by_label("ms", exact=True).fill("soon")
    page.get_by_role("button", name="Add the rule").click()
    page.locator("[role=alert]", has_text="action.ms takes milliseconds").wait_for()
    page.get_by_role("button", name="Remove fault-1").click()
    page.get_by_text("There are no rules.").wait_for()


def test_a_producer_is_shown_with_its_window_and_its_epochs(
    broker: Echoless, open_page: OpenPage
) -> None:
    """Leads from a row of the Live page to the window, the next sequence, and the fenced epoch beside it."""
    producer_id = tell(broker)
    page = open_page(broker)
    page.locator("event-list tr[data-kind=divergent]").click()
    page.get_by_role("link", name=f"The window of producer {producer_id} now").click()
    page.locator("h3", has_text="epoch 0, fenced").wait_for()
    page.locator("h3", has_text="epoch 1, now").wait_for()
    lines = page.locator(".chosen .line")
    assert lines.last.get_attribute("aria-label") == "stored 0 to 4, next 5"
    assert (
        lines.first.get_attribute("aria-label")
        == "over 0 to 2, over 3 to 5, over 6 to 8, over 9 to 11, over 12 to 14"
    )
    assert page.url.endswith(f"#/producers/orders/0?id={producer_id}")
    page.locator("nav a", has_text="Producers").click()
    page.locator("main table").first.wait_for()
    assert page.locator("main", has_text="payments-0").count() == 1


def test_topics_groups_and_connections(broker: Echoless, open_page: OpenPage) -> None:
    """A real consumer that has read half: its group, what it holds, and how far it is behind."""
    Native(broker.native_address).create_topic("orders", partitions=2)
    sender = Sender(broker, "orders")
    assert sender.send(0, 10) == "NONE"
    sender.close()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka_address,
            "group.id": "billing",
            "client.id": "biller",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    read = 0
    while read < 4:
        message = consumer.poll(10)
        assert message is not None
        read += 1
    consumer.commit(message=message, asynchronous=False)
    page = open_page(broker, "#/groups/billing")
    page.locator("main", has_text="Members").wait_for()
    row = page.locator("tr", has_text="orders-0").last
    assert row.locator("td.n").all_inner_texts() == ["4", "10", "6"]
    assert "biller" in row.inner_text()
    page.locator("nav a", has_text="Topics").click()
    page.locator("main tr", has_text="billing 6").wait_for()
    page.get_by_role("link", name="orders", exact=True).click()
    page.locator("main h1", has_text="orders").wait_for()
    until(page, "document.querySelectorAll('main tbody tr').length === 2")
    page.locator("nav a", has_text="Broker").click()
    page.locator("main tr", has_text="confluent-kafka-python").first.wait_for()
    assert page.locator("line-plot").count() == 6
    consumer.close()


def test_the_diagram_is_saved(broker: Echoless, open_page: OpenPage) -> None:
    """Saves SVG, Mermaid, and the lines that `echoless trace` draws again."""
    tell(broker)
    page = open_page(broker, "#/diagram")
    page.locator("drawn-diagram .cross").first.wait_for()
    saved = {name: _save(page, name) for name in ("SVG", "Mermaid", "JSON lines")}
    assert saved["SVG"].startswith("<svg")
    assert saved["Mermaid"].startswith("sequenceDiagram")
    events = [json.loads(line) for line in saved["JSON lines"].splitlines()]
    assert {"append", "reject", "duplicate"} <= {event.get("decision") for event in events}


def _save(page: Page, name: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    return download.value.path().read_text(encoding="utf-8")


def test_a_long_name_pushes_nothing_out_of_sight(broker: Echoless, open_page: OpenPage) -> None:
    """A table has all its columns in view, and the page is as wide as its window."""
    topic = "long." + "x" * 200
    Native(broker.native_address).create_topic(topic, partitions=1)
    assert Sender(broker, topic).send(0) == "NONE"
    page = open_page(broker, "#/topics")
    for hash_ in ("#/topics", "#/producers", f"#/producers/{topic}/0"):
        page.goto(f"http://{broker.admin_address}/console{hash_}")
        page.locator("td.n").first.wait_for()
        wide = "(one) => one.scrollWidth > one.clientWidth"
        assert not page.evaluate(
            f"[...document.querySelectorAll('html, main, .scroll')].some({wide})"
        ), hash_


@pytest.mark.parametrize("hash_", ["#/constructor", "#/live/%", "#/%E0%A4%A"])
def test_an_address_that_names_no_page_opens_the_first(
    broker: Echoless, open_page: OpenPage, hash_: str
) -> None:
    open_page(broker, hash_).locator("main.live h1").wait_for()


def test_a_diagram_without_events_says_so(broker: Echoless, open_page: OpenPage) -> None:
    """Until the first batch comes."""
    Native(broker.native_address).create_topic("orders", partitions=1)
    page = open_page(broker, "#/diagram")
    page.get_by_text("Nothing to draw yet").wait_for()
    page.locator(".picture").wait_for(state="hidden")
    assert Sender(broker, "orders").send(0) == "NONE"
    page.locator(".picture").wait_for()
    page.get_by_text("Nothing to draw yet").wait_for(state="hidden")


def test_topics_say_why_none_is_shown(broker: Echoless, open_page: OpenPage) -> None:
    """None exists, none has that name, or none is found by the filter."""
    page = open_page(broker, "#/topics")
    page.get_by_text("There are no topics here yet.").wait_for()
    Native(broker.native_address).create_topic("orders", partitions=1)
    page.get_by_role("searchbox").fill("bills")
    page.get_by_text('No topic has "bills" in its name.').wait_for()
    page.goto(f"http://{broker.admin_address}/console#/topics/bills")
    page.get_by_text("There is no topic bills.").wait_for()


@pytest.mark.parametrize("width", [360, 460])
def test_a_narrow_page_stays_readable(broker: Echoless, open_page: OpenPage, width: int) -> None:
    """Nothing scrolls sideways but tables and the pages' names; reasons go to a line of their own."""
    producer_id = tell(broker)
    page = open_page(broker, f"#/producers/orders/0?id={producer_id}")
    page.set_viewport_size({"width": width, "height": 800})
    page.locator(".history li").first.wait_for()
    for reason in page.locator(".history li > :last-child").all():
        box = reason.bounding_box()
        assert box is not None
        assert box["width"] > width / 3
        assert box["x"] + box["width"] <= width
    for link in page.locator("nav a").all():
        link.click()
        page.locator(f"main.{link.get_attribute('data-page')} h1").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
