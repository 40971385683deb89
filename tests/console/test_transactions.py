"""The page of transactions: who holds readers back, and the abort of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from echoless.testkit.admin import Admin
from echoless.testkit.native import Native
from echoless.testkit.transactional_topic import TransactionalTopic
from tests.console.tools import AXE
from tests.support.echoless import Echoless
from tests.toolchain import require

if TYPE_CHECKING:
    from tests.console.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_who_holds_readers_back_is_aborted_after_a_question(
    broker: Echoless, open_page: OpenPage
) -> None:
    """The oldest open transaction is at the top; its abort lets readers go on, and the page says so."""
    require("axe-core")
    Native(broker.native_address).create_topic("orders")
    topic = TransactionalTopic(broker.kafka_address, "orders", behind=4)
    page = open_page(broker, "#/transactions")
    first = page.locator("main table").first.locator("tbody tr").first
    first.get_by_text("orders-holder").wait_for()
    assert first.locator("td").first.inner_text() == "Ongoing"
    waiting = page.locator("main table").nth(1).locator("tbody tr").first
    cells = waiting.locator("td").all_inner_texts()
    behind = topic.log_end_offset - topic.last_stable_offset
    assert cells[:4] == ["11", "11", str(topic.log_end_offset), str(behind)]
    assert cells[4].startswith("orders-holder for ")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [one["id"] for one in found["violations"]] == []

    first.get_by_role("link", name="orders-holder").click()
    page.get_by_role("button", name="Abort …").click()
    page.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Abort …").click()
    page.get_by_role("button", name="Abort, and fence its producer").click()
    page.get_by_text("CompleteAbort").wait_for()
    page.get_by_text("nothing is open that could be aborted").wait_for()
    page.goto(f"http://{broker.admin_address}/console#/transactions")
    page.get_by_text("Nowhere: no transaction is open").wait_for()


def test_a_click_keeps_markers_back(broker: Echoless, open_page: OpenPage) -> None:
    """The transaction stays in Prepare, with the marker missing, until the rule is removed."""
    Native(broker.native_address).create_topic("orders")
    page = open_page(broker, "#/faults")
    page.get_by_role("button", name="Keep markers back").click()
    page.locator("#strip", has_text="FAULTS ACTIVE: 1").wait_for()
    producer = Producer(
        {"bootstrap.servers": broker.kafka_address, "transactional.id": "t1", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    producer.commit_transaction(30)
    page.goto(f"http://{broker.admin_address}/console#/transactions/t1")
    page.get_by_text("PrepareCommit").first.wait_for()
    row = page.locator("main tbody tr").first.locator("td").all_inner_texts()
    assert row[-1] == "missing"
    page.get_by_text("nothing is open that could be aborted").wait_for()
    Admin(broker.admin_address).delete("/faults")
    page.get_by_text("CompleteCommit").first.wait_for()
