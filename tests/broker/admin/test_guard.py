"""The requests that the admin port answers: real sockets, exact bytes, and the checks on their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from echoless.broker.admin.guard import SAFE_HEADERS, own_names
from echoless.broker.config.loading import Config
from echoless.broker.config.values import Address
from tests.broker.admin.raw_http import Answer, ask, ask_lines
from tests.support.in_process import Running

RULE = json.dumps({"action": "twice"}).encode()
_NO_HOSTS = ("", "[", "[::1", "::1]", "127.1", "0x7f000001", "u@evil.example", "\xff", "a" * 2000)
JSON = "Content-Type: application/json"


async def add_rule(address: str, *headers: str, host: str | None = None) -> Answer:
    """POST /faults with these headers besides `Host`."""
    host = address if host is None else host
    return await ask(address, "POST /faults HTTP/1.1", f"Host: {host}", *headers, body=RULE)


def has_rules(running: Running) -> bool:
    return bool(running.broker.faults.documents())


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
async def test_programs_add_and_remove_rules(
    running: Running, admin_address: str, content_type: str
) -> None:
    """curl, the command and the testkit send neither an origin nor a site."""
    answer = await add_rule(admin_address, f"Content-Type: {content_type}")
    assert (answer.status, has_rules(running)) == (201, True)
    answer = await ask(admin_address, "DELETE /faults HTTP/1.1", f"Host: {admin_address}")
    assert (answer.status, has_rules(running)) == (200, False)


async def test_the_brokers_own_pages_may_do_all(running: Running, admin_address: str) -> None:
    """Their origin is where the request goes."""
    own = (f"Origin: http://{admin_address}", "Sec-Fetch-Site: same-origin")
    answer = await add_rule(admin_address, JSON, *own)
    assert (answer.status, has_rules(running)) == (201, True)


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://evil.example",
        "Origin: https://evil.example",
        "Origin: http://127.0.0.1:1",  # another port of this machine is another site
        "Origin: http://localhost",
        "Origin: null",
        "Origin: ",
        "Origin: http://[",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Sec-Fetch-Site: anything new",
    ],
)
async def test_pages_of_other_sites_get_nothing(
    running: Running, admin_address: str, header: str
) -> None:
    """Neither a change, nor an answer, nor the permission that a preflight asks for."""
    host, asks = f"Host: {admin_address}", ("Access-Control-Request-Method: POST", JSON, header)
    for method in ("GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS", "TRACE"):
        answer = await ask(admin_address, f"{method} /faults HTTP/1.1", host, *asks, body=RULE)
        assert (method, answer.status) == (method, 403)
        assert not has_rules(running)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        if method != "HEAD":
            assert "pages of other sites" in answer.document["error"]


async def test_only_a_link_may_come_from_another_site(admin_address: str) -> None:
    """The page with the link sees nothing of the answer; one with a frame would show it."""
    host, link = (
        f"Host: {admin_address}",
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),
    )
    for method, path, destination, status in (
        ("GET", "/health", "document", 200),
        ("GET", "/health", "iframe", 403),
        ("GET", "/health", "empty", 403),
        ("POST", "/faults", "document", 403),
    ):
        fetched = (*link, f"Sec-Fetch-Dest: {destination}")
        answer = await ask(admin_address, f"{method} {path} HTTP/1.1", host, *fetched)
        assert answer.status == status


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/jsonx",
        "application/json, text/plain",
        "",
        None,
    ],
)
async def test_only_json_changes_anything(
    running: Running, admin_address: str, content_type: str | None
) -> None:
    """All that a form or a script may send without a preflight is refused by its type."""
    header = () if content_type is None else (f"Content-Type: {content_type}",)
    answer = await add_rule(admin_address, *header)
    assert (answer.status, has_rules(running)) == (415, False)
    assert "curl --json" in answer.document["error"]


async def test_compressed_bodies_are_refused(running: Running, admin_address: str) -> None:
    """They could grow to anything."""
    answer = await add_rule(admin_address, JSON, "Content-Encoding: deflate")
    assert (answer.status, has_rules(running)) == (415, False)


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/decisions", "/faults", "/nothing"])
async def test_a_rebound_name_gets_nothing(admin_address: str, path: str) -> None:
    """To the browser it is the page's own site, whatever it resolves to; its `Host` gives it away."""
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", *_NO_HOSTS):
        answer = await ask(admin_address, f"GET {path} HTTP/1.1", f"Host: {host}")
        assert (host, answer.status) == (host, 421)
        assert "admin_hosts" in answer.document["error"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80"])
async def test_a_rebound_page_changes_nothing(
    running: Running, admin_address: str, host: str
) -> None:
    """Its origin is its own, and so is its site: only the name is wrong."""
    own = (f"Origin: http://{host}", "Sec-Fetch-Site: same-origin")
    answer = await add_rule(admin_address, JSON, *own, host=host)
    assert (answer.status, has_rules(running)) == (421, False)


async def test_addresses_and_localhost_are_fine(admin_address: str) -> None:
    """No other site can have them. The port may differ: containers map it."""
    for host in (
        *("localhost", "LOCALHOST:1", "localhost.:8080"),
        *("127.0.0.1", "10.1.2.3:8080", "[::1]:8080", "[fe80::1]", "[2001:db8::1]:9"),
    ):
        answer = await ask(admin_address, "GET /health HTTP/1.1", f"Host: {host}")
        assert (host, answer.status) == (host, 200)


async def test_one_host_is_needed(admin_address: str) -> None:
    """Two could mean two things to two readers; HTTP/1.0, which no browser speaks, may have none."""
    good, evil = f"Host: {admin_address}", "Host: evil.example"
    for lines, status in (
        (["GET /health HTTP/1.1", good, evil], 400),
        (["GET /health HTTP/1.1", evil, good], 400),
        (["GET /health HTTP/1.1", good, good], 400),
        (["GET /health HTTP/1.1"], 400),
        (["GET /health HTTP/1.0"], 200),
        (["GET /health HTTP/1.0", evil], 421),
        (["GET http://evil.example/health HTTP/1.1", good], 421),
        ([f"GET http://{admin_address}/health HTTP/1.1", evil], 421),
        ([f"GET http://{admin_address}/health HTTP/1.1", good], 200),
    ):
        answer = await ask_lines(admin_address, [*lines, "Connection: close"])
        assert (lines, answer.status) == (lines, status)
        assert "error" in answer.document or status == 200


def test_names_of_the_broker_are_those_in_its_configuration() -> None:
    """The addresses it listens on, those it advertises, and those the operator adds."""
    config = Config(
        listen=(Address("0.0.0.0", 9092),),
        advertise=(Address("Broker1.example.", 9092),),
        native_advertise=Address("inside", 9093),
        admin_listen=Address("console", 8080),
        admin_hosts=("Monitor.example",),
    )
    names = own_names(config)
    assert {"localhost", "broker1.example", "inside", "console", "monitor.example"} <= names
    assert "evil.example" not in names


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/metrics", 200),
        ("GET", "/nothing", 404),
        ("PUT", "/faults", 405),
    ],
)
async def test_every_answer_has_the_safe_headers(
    admin_address: str, method: str, path: str, status: int
) -> None:
    """Nothing is kept, framed, guessed at or included by other sites; errors too."""
    answer = await ask(admin_address, f"{method} {path} HTTP/1.1", f"Host: {admin_address}")
    assert answer.status == status
    assert_safe(answer.headers)


async def test_what_is_not_http_is_answered_in_the_same_way(admin_address: str) -> None:
    """aiohttp would answer by itself, in plain text and without the headers."""
    answer = await ask_lines(admin_address, ["this is not HTTP"])
    assert answer.status == 400
    assert answer.document["error"].startswith("this is not HTTP: ")
    assert_safe(answer.headers)


def assert_safe(headers: dict[str, Any]) -> None:
    expected = {name.lower(): value for name, value in SAFE_HEADERS.items()}
    assert {name: headers.get(name) for name in expected} == expected
