"""The page about a failed test: what it says, that nothing in it is markup of somebody else, and its size."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from echoless.testkit.failed_tests import page_name
from echoless.testkit.failure_page import PAGE_BYTES_MAX, BrokerStory, render_page

EVIL = "</pre><script>alert('x')</script><img src=//evil.example/x onerror=alert(1)>"
ALLOWED = frozenset(
    {
        *("html", "head", "meta", "title", "style", "body", "section", "h1", "h2", "h3", "b", "p"),
        *("pre", "div", "table", "thead", "tbody", "tr", "th", "td"),
        *("svg", "g", "rect", "line", "path", "text", "tspan", "circle", "defs", "marker"),
        *("polygon", "polyline", "desc", "clippath", "use"),
    }
)


class Elements(HTMLParser):
    """Every element and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def decision(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "event": "decision",
        "number": number,
        "time_ms": 1000 + number,
        "broker_id": 1,
        "topic": "orders",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": number,
        "last_sequence": number,
        "client_id": "shop",
        "address": "127.0.0.1:5",
        "principal": "User:ANONYMOUS",
        "connection_id": 1,
        "correlation_id": number,
        "decision": "append",
        "base_offset": number,
        "error": None,
        "reason": "",
        "window": [],
        **fields,
    }


def rule(name: str, **fields: Any) -> dict[str, Any]:
    action = {"type": "drop_response", "later": "wait"}
    counts = {"hits": 0, "seen": 0, "exhausted": False}
    return (
        {"name": name, "match": {"api": "produce"}, "schedule": {}, "action": action}
        | counts
        | fields
    )


def story(**fields: Any) -> BrokerStory:
    return BrokerStory(**{"address": "127.0.0.1:9092", **fields})


def test_faults_that_struck_and_that_did_not_are_listed() -> None:
    """With their counts, each step of a script by itself."""
    steps = [rule("", hits=1, seen=3), rule("", seen=2, schedule={"nth": 5})]
    rules = [rule("lost", hits=2, seen=4), rule("late", optional=True), rule("s", script=steps)]
    page = render_page("t", "why", [story(rules=rules)])
    rows = re.findall(r"<tr>(<td>.*?)</tr>", page)
    texts = [re.sub(r"<.*?>", "|", row).split("|")[1::2] for row in rows]
    lost = "drop_response later=wait"
    assert texts == [
        ["lost", lost, "api=produce", "4", "2", ""],
        ["late", lost, "api=produce", "0", "0", "never struck (optional)"],
        ["s/1", lost, "api=produce", "3", "1", ""],
        ["s/2", lost, "api=produce, nth=5", "2", "0", "never struck"],
    ]


def test_whatever_is_said_is_text() -> None:
    """Ids, names, errors, settings and logs of others bring no element, no attribute and no address."""
    events = [
        decision(0, topic=EVIL, client_id=EVIL, reason=EVIL),
        decision(1, decision="reject", error=EVIL, reason=EVIL),
        {
            "event": "fault",
            "number": 2,
            "time_ms": 1002,
            "broker_id": 1,
            "rule": EVIL,
            "action": EVIL,
            "detail": EVIL,
            "api": EVIL,
            "connection_id": 1,
            "correlation_id": 3,
            "client_id": EVIL,
            "address": EVIL,
            "batches": [],
            "principal": "",
            "about": EVIL,
        },
    ]
    rules = [rule(EVIL, match={"topic": EVIL}, action={"type": EVIL, "path": EVIL})]
    told = story(
        events=events,
        rules=rules,
        settings={"a": EVIL},
        log=EVIL,
        address=EVIL,
        trouble=EVIL,
    )
    page = render_page(EVIL, EVIL, [told], EVIL)
    found = Elements(page)
    assert found.tags <= ALLOWED, found.tags - ALLOWED
    assert not [
        name for name, _ in found.attributes if name in {"src", "href", "onerror", "onload"}
    ]
    addresses = [value for _, value in found.attributes if "//" in value]
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert "url(http" not in page
    assert ("http-equiv", "Content-Security-Policy") in found.attributes
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("width", [10, 3000])
def test_the_size_is_bounded(width: int) -> None:
    """However much there is, and however long names and logs are; the newest is kept."""
    events = [decision(n, topic="x" * width, reason="y" * width) for n in range(3000)]
    rules = [rule(f"rule-{n}", match={"topic": "z" * width}) for n in range(2000)]
    told = story(events=events, rules=rules, log="l" * 10_000_000 + "the end")
    page = render_page("t", "f" * 10_000_000 + "the cause", [told] * 4)
    assert len(page.encode()) <= PAGE_BYTES_MAX
    assert page.count("the end") == 4
    assert "the cause" in page
    assert "earlier events are left out" in page


def test_a_broker_that_does_not_answer_has_its_log() -> None:
    """And the reason."""
    page = render_page("t", "f", [story(trouble="it is gone", log="its last words")])
    assert "it is gone" in page
    assert "its last words" in page
    assert "No rule was set" in page


def test_each_test_has_a_file_of_its_own() -> None:
    """Whatever its id has in it."""
    ids = ["a/b.py::t[x/y]", "a/b.py::t[x_y]", "a/b.py::t[x y]", "../../etc/passwd", "n" * 500, "é"]
    names = [page_name(one) for one in ids]
    assert len(set(names)) == len(ids)
    assert all(re.fullmatch(r"[\w\-][\w\-.]{0,120}\.html", one) for one in names), names
