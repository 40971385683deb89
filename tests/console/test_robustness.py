"""The console when things go wrong: restarts, floods, foreign pages, tokens, many tabs, no JavaScript."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echoless.testkit.admin import Admin
from tests.console.flood import FloodingBroker
from tests.console.story import Sender, tell
from tests.console.until import until
from tests.support.echoless import Echoless

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.console.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKEN = "q3bVvnsS0lD2Zx8KfWm1uA"
READER = "9tq1XrGhe4wPjDk7LsYc0Q"
LOOKED_AT = re.compile(r"/(topics|producers|groups|metrics|connections|health|faults)(\?.*)?$")
"""Documents that pages ask for again and again."""


def test_a_restart_is_seen_and_said(broker: Echoless, open_page: OpenPage) -> None:
    """The page says that the broker is away, comes back by itself, and shows what happens after."""
    tell(broker)
    page = open_page(broker)
    page.locator("#link[data-state=live]").wait_for()
    broker.kill()
    page.locator("#link[data-state=away]").wait_for()
    page.locator("event-list tr", has_text="the connection to the broker is lost").wait_for()
    broker.start()
    page.locator("#link[data-state=live]").wait_for()
    page.locator("event-list tr", has_text="connected again").wait_for()
    page.locator("event-list tr", has_text="has restarted").wait_for()
    sender = Sender(broker, "payments")
    assert sender.send(0) == "NONE"
    sender.close()
    page.locator("event-list tr", has_text=f"{sender.producer_id}·0").first.wait_for()


def test_tabs_share_one_follower(broker: Echoless, open_page: OpenPage) -> None:
    """Three tabs, one stream; when the tab that reads is closed, another goes on."""
    tell(broker)
    first = open_page(broker)
    first.locator("event-list tr[data-kind=refused]").first.wait_for()
    tabs = [open_page.tab(first.context.new_page(), broker, "#/live") for _ in range(2)]
    for tab in tabs:
        tab.locator("event-list tr[data-kind=refused]").first.wait_for()
    followers = Admin(broker.admin_address).get("/overview")["followers"]
    assert followers == {"programs": 0, "consoles": 1}
    first.close()
    sender = Sender(broker, "payments")
    sent = 0
    while not tabs[0].locator("event-list tr", has_text=f"{sender.producer_id}·0").count():
        assert sender.send(sent, 1) == "NONE"
        sent += 1
        tabs[0].wait_for_timeout(100)
    tabs[1].locator("event-list tr", has_text=f"{sender.producer_id}·0").first.wait_for()
    sender.close()


def test_many_decisions_leave_the_page_responsive(browser: Browser) -> None:
    """20,000 within ten seconds, some of them lost on the way: all are counted, few are kept, few are drawn."""
    with FloodingBroker() as flooding:
        page = browser.new_page(viewport={"width": 1360, "height": 820})
        page.goto(f"{flooding.url}/console#/live")
        page.locator("#link[data-state=live]").wait_for()
        page.evaluate(
            """() => {
                window.longest = 0;
                let before = performance.now();
                const look = (now) => {
                    window.longest = Math.max(window.longest, now - before);
                    before = now;
                    requestAnimationFrame(look);
                };
                requestAnimationFrame(look);
            }"""
        )
        flooding.pour(20_000, seconds=10, lost=17)
        stored = page.locator(".counts span", has_text="stored")
        until(page, "document.querySelector('.counts').textContent.includes('20,000 stored')")
        assert stored.count() == 1
        until(page, "document.querySelector('.counts').textContent.includes('17 not seen')")
        rows = page.evaluate("document.querySelectorAll('event-list tr').length")
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        longest = page.evaluate("window.longest")
        print(f"longest frame {longest:.0f} ms, heap {heap / 1e6:.1f} MB, {rows} rows drawn")
        assert rows < 100
        assert heap < 100e6
        page.close()


@pytest.mark.parametrize("hash_", ["#/topics", "#/producers", "#/groups", "#/broker"])
def test_a_broker_that_stands_still_is_not_asked_twice_at_a_time(
    broker: Echoless, open_page: OpenPage, hash_: str
) -> None:
    """A browser has six connections to a host: looks that pile up would leave none for the rest of the page."""
    tell(broker)
    page = open_page(broker, "#/diagram")
    page.locator("#link[data-state=live]").wait_for()
    asked: list[str] = []
    page.clock.install()
    page.route(LOOKED_AT, lambda route: asked.append(route.request.url))  # never answered
    page.goto(f"http://{broker.admin_address}/console{hash_}")
    until(page, f"document.querySelector('main.{hash_[2:]}')")
    while not asked:
        page.wait_for_timeout(1)
    page.clock.run_for(9_000)
    paths = [url.rpartition("/")[2] for url in asked]
    assert sorted(paths) == sorted(set(paths))


def test_events_of_an_unknown_kind_are_left_out_and_said_once(browser: Browser) -> None:
    """A page that a browser has kept may meet a newer broker: it shows what it knows, and stays connected.

    A decision named like an event that is no decision is unknown, too: no counter knows it.
    """
    kinds = ("constructor", "prophecy", "note", "lost", "skipped", "fault")
    with FloodingBroker() as flooding:
        page = browser.new_page()
        opened: list[str] = []
        page.on("request", lambda request: opened.append(request.url))
        page.goto(f"{flooding.url}/console#/live")
        page.locator("#link[data-state=live]").wait_for()
        for kind in (*kinds, "prophecy"):
            flooding.tell_kind(kind)
        flooding.pour(1, seconds=0.02, lost=0)
        page.locator("event-list tr", has_text="7·2").wait_for()
        for kind in kinds:
            assert page.locator("event-list tr", has_text=f'kind "decision {kind}"').count() == 1
        counted = "Object.values(events.counts).every(Number.isInteger)"
        assert page.evaluate(f"import('./console/events.js').then(({{ events }}) => {counted})")
        assert len([url for url in opened if "/decisions" in url]) == 1
        page.close()


def test_tokens_are_asked_for_and_never_in_an_address(tmp_path: Path, open_page: OpenPage) -> None:
    """A wrong one is refused, a reader's shows everything and changes nothing, and a reload keeps it."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN} change User:operator\n{READER} read User:monitoring\n")
    tokens.chmod(0o600)
    broker = Echoless(tmp_path / "broker", {"admin_token_file": str(tokens)})
    broker.start()
    page = open_page(broker, "#/faults")
    page.get_by_label("Token").wait_for()
    page.get_by_role("link", name="Live").click()  # no way around the question
    page.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("does not accept this token").wait_for()
    page.get_by_label("Token").fill(READER)
    page.get_by_role("button", name="Log in").click()
    page.locator("main.live h1").wait_for()
    page.get_by_role("link", name="Faults").click()
    page.get_by_text("your token is for reading only").wait_for()
    assert page.locator("button.fault:not(:disabled)").count() == 0
    page.reload()
    page.get_by_text("your token is for reading only").wait_for()
    assert READER not in page.url
    assert page.evaluate("Object.values(localStorage).join()").find(READER) < 0
    broker.terminate()


def test_faults_that_are_not_allowed_are_shown_with_the_reason(
    tmp_path: Path, open_page: OpenPage
) -> None:
    broker = Echoless(tmp_path, {"allow_faults": "false"})
    broker.start()
    page = open_page(broker, "#/faults")
    page.get_by_text("faults are not allowed on this broker (allow_faults=false)").first.wait_for()
    assert page.locator("button.fault").count() >= 6
    assert page.locator("button.fault:not(:disabled)").count() == 0
    broker.terminate()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_foreign_requests_are_refused(
    broker: Echoless, headers: dict[str, str], status: int
) -> None:
    """The rules of the port hold for the console's paths: no other page may use them."""
    url = f"http://{broker.admin_address}"
    kind = {"Content-Type": "application/json", **headers}
    changing = urllib.request.Request(f"{url}/faults", b'{"action": "twice"}', kind)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(changing)
    assert refused.value.code == status
    if "Content-Type" not in headers:
        for path in (
            "/console",
            "/overview",
            "/trace.svg",
            "/decisions?follow=true&reader=console",
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(url + path, headers=headers))
            assert refused.value.code == status
    assert Admin(broker.admin_address).get("/faults")["rules"] == []


def test_without_javascript_the_page_says_what_it_needs(
    broker: Echoless, open_page: OpenPage
) -> None:
    page = open_page(broker, java_script_enabled=False)
    assert "needs JavaScript" in page.locator("noscript").inner_text()


def test_consoles_leave_room_for_programs(broker: Echoless) -> None:
    """A command can follow beside any number of consoles; one console too many is told so."""
    url = f"http://{broker.admin_address}/decisions?follow=true&n=0"
    consoles = [urllib.request.urlopen(f"{url}&reader=console") for _ in range(8)]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url}&reader=console")
    assert refused.value.code == 503
    assert b"8 consoles follow already" in refused.value.read()
    urllib.request.urlopen(url).close()
    for one in consoles:
        one.close()


def test_tabs_of_different_principals_do_not_tell_each_other(
    tmp_path: Path, open_page: OpenPage
) -> None:
    """Each sees what its own token shows it: ACLs may allow one of them less."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN} change User:operator\n{READER} read User:monitoring\n")
    tokens.chmod(0o600)
    broker = Echoless(tmp_path / "broker", {"admin_token_file": str(tokens)})
    broker.start()
    admin = Admin(broker.admin_address, token=TOKEN)
    page = open_page(broker)
    tabs = [page, page.context.new_page(), page.context.new_page()]
    for tab, token in zip(tabs, (TOKEN, READER, TOKEN), strict=True):
        if tab is not page:
            open_page.tab(tab, broker, "#/live")  # type: ignore[attr-defined]
        tab.get_by_label("Token").fill(token)
        tab.get_by_role("button", name="Log in").click()
        tab.locator("#link", has_text="live").wait_for()
        tab.locator("event-list").wait_for(state="attached")  # its module has been loaded
    assert admin.get("/overview")["followers"]["consoles"] == 2
    broker.terminate()
