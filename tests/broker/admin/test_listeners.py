"""`/listeners` over HTTP, on a broker in this process."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from echoless.broker.authentication.admin_tokens import Tokens
from echoless.broker.tree.node_tree import ConnectionLostError
from tests.broker.admin.raw_http import ask
from tests.support.given_addresses import given_to_a_client
from tests.support.in_process import Running

MAPPED = {"advertise": "localhost:49153", "networks": {"10.88.0.0/16": "broker:9092"}}
READER, EDITOR = "reader-0123456789", "editor-0123456789"


class ListenersClient:
    """Asks for `/listeners` and below it; gives the status and the document."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def __call__(
        self, method: str, path: str = "", body: Any = None, token: str | None = None
    ) -> tuple[int, Any]:
        more = {} if body is None else {"json": body}
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = self._url + path
        async with self._session.request(method, url, headers=headers, **more) as response:
            return response.status, await response.json()


@pytest.fixture
async def listeners(admin_address: str) -> AsyncIterator[ListenersClient]:
    """A client of the running broker's admin port."""
    async with aiohttp.ClientSession() as session:
        yield ListenersClient(session, f"http://{admin_address}/listeners")


async def test_an_address_is_set_shown_and_reset(
    listeners: ListenersClient, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Each answer shows what is in force, what is configured, and what other brokers give."""
    address = running.kafka_address
    configured = {"advertise": address, "registered": address, "networks": {}}
    before = {
        "listener": "PLAINTEXT",
        "security_protocol": "PLAINTEXT",
        "listen": address,
        **configured,
        "configured": configured,
        "is_changed": False,
    }
    status, document = await listeners("GET")
    assert (status, document["broker_id"]) == (200, 1)
    assert [one["listener"] for one in document["listeners"]] == ["PLAINTEXT", "NATIVE"]
    assert document["listeners"][0] == before
    with caplog.at_level(logging.INFO):
        status, document = await listeners("PUT", "/plaintext", MAPPED)
    after = {**before, **MAPPED, "registered": "localhost:49153", "is_changed": True}
    assert (status, document) == (200, after)
    assert "PUT /listeners/plaintext" in caplog.text
    assert "localhost:49153" in caplog.text
    assert await listeners("GET", "/PLAINTEXT") == (200, after)
    assert (await given_to_a_client(address))[1] == ("localhost", 49153)
    assert await listeners("DELETE", "/PLAINTEXT") == (200, before)
    assert str((await given_to_a_client(address))[1]) == address


async def test_what_the_body_leaves_out_is_as_configured(
    listeners: ListenersClient, running: Running
) -> None:
    """Each PUT says everything: an earlier one leaves nothing behind."""
    await listeners("PUT", "/PLAINTEXT", MAPPED)
    _, document = await listeners("PUT", "/PLAINTEXT", {"networks": {"::1": "arrival"}})
    assert document["advertise"] == document["registered"] == running.kafka_address
    assert document["networks"] == {"::1/128": "arrival"}
    _, document = await listeners("PUT", "/PLAINTEXT", {"advertise": "Arrival"})
    assert (document["advertise"], document["networks"]) == ("arrival", {})
    assert document["registered"] == running.kafka_address


@pytest.mark.parametrize(
    ("path", "body", "refusal"),
    [
        ("/EXTERNAL", MAPPED, (404, "no listener 'EXTERNAL' on this broker, only PLAINTEXT")),
        ("/PLAINTEXT", {}, (400, "(DELETE restores what is configured)")),
        ("/PLAINTEXT", ["a:1"], (400, 'the body takes {"advertise": "HOST:PORT"}')),
        ("/PLAINTEXT", {"address": "a:1"}, (400, "\"networks\" or both, not 'address'")),
        ("/PLAINTEXT", {"advertise": "a"}, (400, "advertise: takes HOST:PORT that clients can")),
        ("/PLAINTEXT", {"advertise": 9092}, (400, "advertise: takes HOST:PORT that clients can")),
        ("/PLAINTEXT", {"advertise": None}, (400, "advertise: takes HOST:PORT that clients can")),
        ("/PLAINTEXT", {"advertise": "0.0.0.0:1"}, (400, "or arrival, not '0.0.0.0:1'")),
        ("/PLAINTEXT", {"networks": "10.0.0.0/8"}, (400, "networks: takes {")),
        ("/PLAINTEXT", {"networks": {"10.0.0.0/8": 1}}, (400, "networks: takes {")),
        ("/PLAINTEXT", {"networks": {"10.0.0.1/8": "a:1"}}, (400, "the network is 10.0.0.0/8")),
        (
            "/PLAINTEXT?broker=2",
            MAPPED,
            (400, "the addresses of broker 2 are set on its own admin"),
        ),
    ],
)
async def test_what_cannot_be_set_is_refused_with_what_could(
    listeners: ListenersClient, running: Running, path: str, body: Any, refusal: tuple[int, str]
) -> None:
    """The message names the thing and the remedy, and nothing changes."""
    status, document = await listeners("PUT", path, body)
    assert status == refusal[0]
    assert refusal[1] in document["error"]
    assert running.broker.listeners.advertised == running.broker.listeners.configured


async def test_a_coordinator_that_is_away_is_named(
    listeners: ListenersClient, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503: nothing has changed, and trying again may help."""

    async def fail(_endpoints: object) -> None:
        raise ConnectionLostError("the session is suspended")

    monkeypatch.setattr(running.broker.membership, "advertise", fail)
    status, document = await listeners("PUT", "/PLAINTEXT", MAPPED)
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert document["error"] == (
        "the addresses of PLAINTEXT are as before, try again: "
        "the coordinator did not take the new ones: the session is suspended"
    )
    assert running.broker.listeners.advertised == running.broker.listeners.configured


async def test_where_the_port_has_tokens_only_those_who_may_change_redirect_clients(
    listeners: ListenersClient, running: Running, tmp_path: Path
) -> None:
    """A stranger and a reader are refused, whatever they send."""
    path = tmp_path / "tokens"
    path.write_text(f"{READER} read\n{EDITOR} change\n")
    running.broker.admin_tokens = Tokens(str(path))
    for method in ("PUT", "DELETE"):
        body = MAPPED if method == "PUT" else None
        assert (await listeners(method, "/PLAINTEXT", body))[0] == HTTPStatus.UNAUTHORIZED
        assert (await listeners(method, "/PLAINTEXT", body, READER))[0] == HTTPStatus.FORBIDDEN
    assert (await listeners("GET"))[0] == HTTPStatus.UNAUTHORIZED
    assert (await listeners("GET", token=READER))[0] == HTTPStatus.OK
    assert running.broker.listeners.advertised == running.broker.listeners.configured
    assert (await listeners("PUT", "/PLAINTEXT", MAPPED, EDITOR))[0] == HTTPStatus.OK


async def test_a_page_of_another_site_redirects_no_one(
    admin_address: str, running: Running
) -> None:
    """A browser of someone who may change sends what a page asks for: no preflight is answered, no other site let in."""
    body = b'{"advertise": "evil.example:9092"}'
    for headers in (
        ("Content-Type: text/plain",),
        ("Content-Type: application/json", "Origin: http://evil.example"),
    ):
        head = ("PUT /listeners/PLAINTEXT HTTP/1.1", f"Host: {admin_address}", *headers)
        answer = await ask(admin_address, *head, body=body)
        assert answer.status in {HTTPStatus.UNSUPPORTED_MEDIA_TYPE, HTTPStatus.FORBIDDEN}
    assert running.broker.listeners.advertised == running.broker.listeners.configured
