"""The keys by which tokens are checked: where they come from, when they are read again, and when they are too old."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.authentication import key_document, token_keys
from echoless.broker.authentication.key_document import (
    DOCUMENT_BYTES_MAX,
    KeyDocument,
    KeyDocumentError,
)
from echoless.broker.authentication.key_set import read_key_set
from echoless.broker.authentication.session import Logins
from echoless.broker.authentication.token_keys import TokenKeys
from echoless.broker.config.loading import Config, ConfigError, load_config
from echoless.broker.metrics import Metrics
from tests.support.certificates import Authority
from tests.support.tokens import Issuer, public_row

ALGORITHMS = ("RS256", "ES256")


class Server:
    """Serves one document over HTTP, and counts how often it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked = 0
        self.status = 200
        self.headers: dict[str, str] = {}
        self.data = b""
        self.may_answer = threading.Event()
        self.may_answer.set()


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked += 1
            server.may_answer.wait()
            with suppress(ConnectionError):
                self.send_response(server.status)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(server.data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        if context is not None:
            http.socket = context.wrap_socket(http.socket, server_side=True)
        scheme = "http" if context is None else "https"
        server.url = f"{scheme}://127.0.0.1:{http.server_port}/keys"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.may_answer.set()
        http.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        publish(found, "first")
        yield found


def publish(server: Server, *key_ids: str) -> None:
    server.data = json.dumps({"keys": [public_row("RS256", one) for one in key_ids]}).encode()


def configured(url: str, **more: str) -> Config:
    names = {"sasl_oauthbearer_jwks_endpoint_url": url, **more}
    return load_config([part for item in names.items() for part in ("--set", "=".join(item))], {})


@asynccontextmanager
async def keys_of(url: str, **more: str):
    keys = TokenKeys(configured(url, **more))
    await keys.start()
    yield keys
    await keys.close()


def ids(keys: TokenKeys) -> list[str] | None:
    found = keys.current()
    return None if found is None else found.ids


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The age of keys in seconds; the first item is the time."""
    now = [1000.0]
    monkeypatch.setattr(token_keys, "monotonic", lambda: now[0])
    return now


async def test_keys_of_a_server(server: Server) -> None:
    """Are there when the start is over."""
    async with keys_of(server.url) as keys:
        assert ids(keys) == ["first"]
        found = keys.current()
        assert found is not None
        assert found.find("first", "RS256") is not None
        assert found.find("first", "PS256") is None
        assert found.find(["first"], "RS256") is None


async def test_an_unknown_key_has_them_read_again_now_and_then(
    server: Server, clock: list[float]
) -> None:
    """Once in ten seconds, however many ask; those who ask meanwhile get the same answer."""
    async with keys_of(server.url) as keys:
        publish(server, "first", "second")
        assert await asyncio.gather(*(keys.read_again() for _ in range(50))) == [True] * 50
        assert (ids(keys), server.asked) == (["first", "second"], 2)
        clock[0] += 9
        assert not await keys.read_again()
        clock[0] += 2
        assert await keys.read_again()
        assert server.asked == 3


async def test_old_keys_stay_for_a_bounded_time(
    server: Server, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """While the server is away; then there are none, and each step is in the log."""
    more = {"sasl_oauthbearer_jwks_keys_max_age_ms": "60000"}
    async with keys_of(server.url, **more) as keys:
        server.status = 500
        clock[0] += 60
        assert not await keys.read_again()
        assert ids(keys) == ["first"]
        assert "the server answered 500; the old ones stay for a while" in caplog.text
        clock[0] += 1
        assert ids(keys) is None
        assert "are older than sasl_oauthbearer_jwks_keys_max_age_ms" in caplog.text
        server.status = 200
        clock[0] += 10
        assert await keys.read_again()
        assert ids(keys) == ["first"]


@pytest.mark.slow
async def test_they_are_read_regularly(server: Server) -> None:
    """After sasl_oauthbearer_jwks_endpoint_refresh_ms, and after a failure sooner."""
    server.status = 503
    quick = {"sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": "1"}
    async with keys_of(server.url, **quick) as keys:
        assert ids(keys) is None
        server.status = 200
        async with asyncio.timeout(20):
            while ids(keys) is None:  # noqa: ASYNC110 - the server counts, and tells no one
                await asyncio.sleep(0.01)
    asked = server.asked
    async with keys_of(server.url, sasl_oauthbearer_jwks_endpoint_refresh_ms="1000") as keys:
        publish(server, "second")
        async with asyncio.timeout(20):
            while ids(keys) != ["second"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert server.asked >= asked + 2


async def test_a_server_that_is_away_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """The broker starts, no token is valid, and the log says so."""
    async with keys_of("http://127.0.0.1:1/keys") as keys:
        assert ids(keys) is None
    assert "cannot read the token keys of http://127.0.0.1:1/keys" in caplog.text
    assert "no token is valid" in caplog.text


async def test_a_server_that_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded, its connection is ended, and the next one is not disturbed."""
    monkeypatch.setattr(key_document, "READ_S", 0.05)
    server.may_answer.clear()
    document = KeyDocument(server.url)
    with pytest.raises(KeyDocumentError, match="no whole answer within"):
        await document.read()
    server.may_answer.set()
    monkeypatch.setattr(key_document, "READ_S", 20.0)
    with suppress(KeyDocumentError):  # the abandoned one may still be about to end
        await document.read()
    assert await document.read() == server.data


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "the server answered 302"),
        ((404, {}, b'{"keys": []}'), "the server answered 404"),
        ((200, {}, b" " * (DOCUMENT_BYTES_MAX + 1)), "it is larger than"),
        ((200, {}, b"<html>"), "it is no JSON Web Key Set"),
        ((200, {}, b"[]"), "it is no JSON Web Key Set"),
        ((200, {}, b'{"keys": 1}'), "its keys are no list"),
        ((200, {}, b"[" * 100_000), "it is no JSON Web Key Set"),
        ((200, {"Content-Length": "100"}, b"{}"), "IncompleteRead|no JSON Web Key Set"),
    ],
)
async def test_an_answer_that_is_no_key_set(
    server: Server, caplog: pytest.LogCaptureFixture, answer: Any, said: str
) -> None:
    """It does not replace the keys that there are; redirections are not followed."""
    async with keys_of(server.url) as keys:
        server.status, server.headers, server.data = answer
        assert not await keys.read_again()
        assert ids(keys) == ["first"]
    assert any(re.search(said, line) for line in caplog.messages), caplog.messages


async def test_a_set_without_keys_is_taken(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """An issuer that withdraws every key is obeyed."""
    async with keys_of(server.url) as keys:
        publish(server)
        assert await keys.read_again()
        assert ids(keys) == []
    assert "none at all" in caplog.text


async def test_the_certificate_of_the_server_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Against the system's authorities (SSL_CERT_FILE); a stranger's keys are not taken."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer"))
    with serving(context) as server:
        publish(server, "first")
        async with keys_of(server.url) as keys:
            assert ids(keys) is None
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        async with keys_of(server.url) as keys:
            assert ids(keys) == ["first"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "it has no kid"),
        (7, "it has no kid"),
        ({**public_row("RS256", "k"), "kid": None}, "it has no kid"),
        ({**public_row("RS256", "k"), "d": "AQAB"}, "it is a secret key"),
        ({"kty": "oct", "k": "AAAA", "kid": "k"}, "it is a secret key"),
        (public_row("RS256", "k", use="enc"), "it is not for signatures"),
        (public_row("RS256", "k", key_ops=["sign"]), "it is not for signatures"),
        (public_row("RS256", "k", key_ops=7), "not iterable"),
        (public_row("RS512", "k"), "fits none of"),
        (public_row("ES256", "k", crv="P-384"), "fits none of"),
        (public_row("RS256", "k", kty="EC"), "fits none of"),
        (public_row("RS256", "k", n="!"), ""),
        (public_row("RS256", "k", -1), "at least 2048 bits"),
    ],
)
def test_a_key_that_is_not_used(row: Any, said: str) -> None:
    """The others of the set are."""
    data = json.dumps({"keys": [row, public_row("ES256", "good")]}).encode()
    keys = read_key_set(data, ALGORITHMS)
    assert keys.ids == ["good"]
    (refused,) = keys.refused
    assert said in refused


def test_two_keys_with_one_id() -> None:
    """The first is used, for one algorithm; another algorithm's may have the id as well."""
    rows = [public_row("RS256", "k"), public_row("RS256", "k", 1), public_row("ES256", "k")]
    keys = read_key_set(json.dumps({"keys": rows}).encode(), ALGORITHMS)
    assert (len(keys), len(keys.refused)) == (2, 1)


@pytest.mark.parametrize("data", [None, b"", b"{}"])
def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path, data: bytes | None) -> None:
    """With the option, as for certificates; `serve` exits with 2."""
    path = tmp_path / "keys.json"
    if data is not None:
        path.write_bytes(data)
    issuer = Issuer(tmp_path / "issuer")
    settings = {**issuer.settings(), "sasl_oauthbearer_jwks_endpoint_url": path.as_uri()}
    config = load_config([p for item in settings.items() for p in ("--set", "=".join(item))], {})
    with pytest.raises(ConfigError, match=r"^sasl_oauthbearer_jwks_endpoint_url: file:///"):
        Logins(config, Metrics())


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve` says what to install, and exits with 2."""
    for name in ("echoless.broker.authentication.bearer", "echoless.broker.authentication.key_set"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "jwt", None)
    settings = Issuer(tmp_path).settings()
    config = load_config([p for item in settings.items() for p in ("--set", "=".join(item))], {})
    with pytest.raises(
        ConfigError, match=r"needs the extra oauth \(pip install 'echoless\[oauth\]'"
    ):
        Logins(config, Metrics())
