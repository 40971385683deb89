"""The admin port against any path, query, header, method and body: answered in JSON, log quiet."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.hostile.target import TIMEOUT_S, assert_quiet_log, is_answering, talk
from tests.support.echoless import Echoless

_EXAMPLES = 150
_MANY_EXAMPLES = 3000

_texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["1" * 5000, "-1", "1e9", "true", "٣", "²", "1_0", " 1", "+1", "0x1", "NaN"]),
    st.integers().map(str),
)
_parts = _texts.map(lambda text: quote(text.encode("utf-8", "surrogatepass"), safe=""))
_raw_parts = st.one_of(_parts, st.sampled_from(["%", "%zz", "%ff", "%00", "..", "%2e%2e", "%2F"]))
_roots = st.sampled_from(
    [
        "/",
        "/health",
        "/ready",
        "/metrics",
        "/topics",
        "/producers",
        "/producers/orders",
        "/producers/orders/0",
        "/decisions",
        "/faults",
        "/nothing",
    ]
)
_queries = st.dictionaries(
    st.sampled_from(["n", "follow", "limit", "producer_id", "topic", "partition", "x", "%ff"]),
    _raw_parts,
    max_size=4,
).map(lambda query: "&".join(f"{name}={value}" for name, value in query.items()))
_targets = st.builds(
    lambda root, parts, query: "/".join([root, *parts]) + (f"?{query}" if query else ""),
    _roots,
    st.lists(_raw_parts, max_size=3),
    _queries,
)
_methods = st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE"])
_header_texts = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20)
_headers = st.dictionaries(
    st.sampled_from(
        [
            "Origin",
            "Sec-Fetch-Site",
            "Content-Type",
            "Accept",
            "Range",
            "Expect",
            "Cookie",
            "If-Modified-Since",
            "Upgrade",
            "Content-Encoding",
            "Authorization",
        ]
    ),
    st.one_of(_header_texts, st.sampled_from(["application/json", "100-continue", "gzip"])),
    max_size=4,
)
_fields = ["name", "match", "schedule", "action", "type", "topic", "producer_id", "probability"]
_json = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10),
        st.sampled_from(["produce", "drop_response", "delay_response", "114-120", "9" * 5000]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(_fields), st.text(max_size=5)), inner, max_size=4),
    ),
    max_leaves=12,
)  # fmt: skip
_actions = ["twice", "drop_response", "close_after", "fail_write", "slow_fsync", "trickle", "error"]
_rules = st.fixed_dictionaries(
    {"action": st.one_of(st.sampled_from(_actions), _json)},
    # They name a topic that does not exist: whatever is accepted hits nothing.
    optional={"name": st.text(max_size=10), "schedule": _json},
).map(lambda rule: {**rule, "match": {"topic": "no such topic"}})
_bodies = st.one_of(
    st.binary(max_size=100),
    _json.map(json.dumps).map(str.encode),
    _rules.map(json.dumps).map(str.encode),
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    """One broker for all; it has to live through it, and to have logged nothing but lines."""
    broker = Echoless(tmp_path_factory.mktemp("admin-target"))
    broker.start()
    yield broker
    assert is_answering(broker.kafka_address)
    assert broker.terminate() == 0
    assert_quiet_log(broker)


def _ask(
    address: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, Any]:
    """Status and document; the connection must not be left without an answer."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1"))
        if method not in {"GET", "HEAD"}:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body if method not in {"GET", "HEAD"} else None)
        answer = connection.getresponse()
        if answer.getheader("Content-Type") == "application/x-ndjson":
            return answer.status, {}  # a stream: it continues as long as it is read
        is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
        data = answer.read()
        return answer.status, json.loads(data) if is_json and data else data
    finally:
        connection.close()


def _fuzz(address: str, examples: int) -> None:
    @given(_methods, _targets, _headers, _bodies)
    @example("GET", "/producers/orders/" + "1" * 5000, {}, b"")
    @example("GET", "/producers/orders/٣".replace("٣", quote("٣")), {}, b"")
    @example("GET", "/decisions?producer_id=" + "1" * 5000, {}, b"")
    @example("DELETE", "/faults/%ff%00", {}, b"")
    @example("HEAD", "/decisions?follow=true", {}, b"")
    @example(
        "POST", "/faults", {"Content-Type": "application/json"}, b'{"a": ' + b"1" * 5000 + b"}"
    )
    @example("POST", "/faults", {"Content-Type": "application/json"}, rb'{"\ud800": "\ud800"}')
    @example("GET", "/health", {"Expect": "\xff"}, b"")
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    def anything(method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        status, document = _ask(address, method, path, headers, body)
        assert status < 500
        if status >= 400 and method != "HEAD":
            assert isinstance(document, dict), (status, document)
            assert isinstance(document["error"], str)

    anything()


@pytest.mark.slow
def test_any_request_is_answered_in_json(target: Echoless) -> None:
    """A status below 500, and the reason as JSON where it is an error."""
    _fuzz(target.admin_address, _EXAMPLES)


@pytest.mark.slow
def test_many_more_requests_are_answered_in_json(target: Echoless) -> None:
    """The same as above, for longer."""
    _fuzz(target.admin_address, _MANY_EXAMPLES)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "body",
    [b"zz\r\n", b"5\r\nab", b"-1\r\n\r\n", b"ffffffffffffffffffff\r\n", b"1;" + b"x" * 20_000],
    ids=["no length", "cut off", "negative", "too large", "long extension"],
)
def test_bodies_that_are_no_http_end_the_connection(
    target: Echoless, method: str, body: bytes
) -> None:
    """It holds for a request whose body is read, and for one whose body is not."""
    path = {"GET": "/health", "POST": "/faults"}[method]
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n"
    )
    answer = talk(target.admin_address, head.encode() + body)
    assert answer[9:12] in {b"400", b"200", b""}


def _posts(address: str, examples: int) -> None:
    @given(_bodies)
    @example(b'{"action": "twice", "name": "\\ud800", "match": {"topic": "no such topic"}}')
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    def any_body(body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        status, document = _ask(address, "POST", "/faults", headers, body)
        assert status in {201, 400, 409}
        assert ("error" in document) == (status != 201)
        assert _ask(address, "DELETE", "/faults", {}, b"")[0] == 200

    any_body()


@pytest.mark.slow
def test_any_body_is_a_rule_or_refused(target: Echoless) -> None:
    """A refused one changes nothing, an accepted one can be shown and removed."""
    _posts(target.admin_address, _EXAMPLES)
