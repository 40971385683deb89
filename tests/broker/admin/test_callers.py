"""Who may use the admin port: tokens, certificates, and the log line of each change."""

from __future__ import annotations

import asyncio
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from echoless.broker.admin import decisions
from echoless.broker.authentication import admin_tokens
from echoless.broker.authentication.admin_tokens import Tokens
from echoless.broker.config.loading import ConfigError, load_config
from echoless.storage.file_system import StorageError
from tests.broker.admin.admin_client import AdminClient
from tests.broker.admin.raw_http import Answer, ask
from tests.support.certificates import Authority
from tests.support.echoless import Echoless
from tests.support.in_process import Running

OPERATOR = "q3bVvnsS0lD2Zx8KfWm1uA"
MONITORING = "9tq1XrGhe4wPjDk7LsYc0Q"
JSON = "Content-Type: application/json"
RULE = b'{"name": "again", "action": "twice"}'
LOGGER = "echoless.broker.admin.callers"


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text(f"{OPERATOR} change User:olga\n{MONITORING} read User:prometheus\n")
    return Tokens(str(path))


@pytest.fixture
def guarded(running: Running, admin_address: str, tokens: Tokens) -> str:
    """The address of an admin port that asks for tokens."""
    running.broker.admin_tokens = tokens
    return admin_address


def rewrite(path: Path, text: str) -> None:
    """Replaces a file at once: a broker may be reading it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


async def send(address: str, method: str, path: str, token: str | None, *headers: str) -> Answer:
    """A request with this token; POST adds a rule."""
    sent = [f"Host: {address}", *headers]
    sent += [] if token is None else [f"Authorization: Bearer {token}"]
    is_post = method == "POST"
    return await ask(
        address,
        f"{method} {path} HTTP/1.1",
        *sent,
        *([JSON] if is_post else []),
        body=RULE if is_post else b"",
    )


@pytest.mark.parametrize("path", ["/", "/metrics", "/topics", "/decisions", "/faults", "/none"])
async def test_nothing_is_shown_without_a_token(guarded: str, path: str) -> None:
    """401 with the scheme, for paths that do not exist, too."""
    for token in (None, OPERATOR[:-1], f"{OPERATOR}x"):
        answer = await send(guarded, "GET", path, token)
        assert answer.status == HTTPStatus.UNAUTHORIZED
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "admin_token_file" in answer.document["error"]
        assert OPERATOR not in str(answer)
    assert (await send(guarded, "GET", path, MONITORING)).status == (
        HTTPStatus.NOT_FOUND if path == "/none" else HTTPStatus.OK
    )


@pytest.mark.parametrize(
    "left", ["", f"{MONITORING} read User:another\n", f"{MONITORING} change User:prometheus\n"]
)
async def test_a_follower_of_the_decisions_does_not_outlive_its_token(
    guarded: str, tokens: Tokens, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: str
) -> None:
    """It gets what was decided before, and the end; one whose token stays goes on."""
    monkeypatch.setattr(admin_tokens, "LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(decisions, "LOOK_INTERVAL_S", 0.01)
    url = f"http://{guarded}/decisions?follow=true&n=0"
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        ends, stays = [
            await session.get(url, headers={"Authorization": f"Bearer {token}"})
            for token in (MONITORING, OPERATOR)
        ]
        rewrite(tmp_path / "tokens", f"{OPERATOR} change User:olga\n{left}")
        assert await ends.content.read() == b""
        assert not stays.content.at_eof()
        rewrite(tmp_path / "tokens", "another-token-0123456789")
        assert await stays.content.read() == b""


@pytest.mark.parametrize("header", ["Basic {}", "{}", "Bearer", "Bearer {} x", "\xff"])
async def test_a_token_comes_as_bearer(guarded: str, header: str) -> None:
    """Anything else in the header is refused."""
    sent = (f"Host: {guarded}", f"Authorization: {header.format(OPERATOR)}")
    answer = await ask(guarded, "GET /topics HTTP/1.1", *sent)
    assert answer.status == HTTPStatus.UNAUTHORIZED


async def test_orchestration_needs_no_token(guarded: str) -> None:
    """`/health` and `/ready` tell a stranger their status alone, and take no method that changes anything."""
    for path, status in (("/health", "ok"), ("/ready", "ready")):
        assert (await send(guarded, "GET", path, None)).document == {"status": status}
        assert (await send(guarded, "GET", path, "wrong")).status == HTTPStatus.UNAUTHORIZED
        assert (await send(guarded, "DELETE", path, None)).status == HTTPStatus.UNAUTHORIZED
    assert (await send(guarded, "GET", "/ready", MONITORING)).document["broker_id"] == 1


async def test_a_stranger_is_not_told_why_a_broker_serves_nothing(
    running: Running, guarded: str
) -> None:
    """The reason may name files and hosts."""
    running.broker.logs.failure = StorageError("/data/orders-0", "gone")
    for path in ("/health", "/ready"):
        answer = await send(guarded, "GET", path, None)
        assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert answer.document == {"status": "storage failed"}
        assert "orders-0" in (await send(guarded, "GET", path, MONITORING)).document["error"]
    running.broker.logs.failure = None


async def test_a_role_says_who_may_change_anything(
    running: Running, guarded: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading is refused to no token; each change is logged with who, from where and what."""
    caplog.set_level(logging.INFO, LOGGER)
    for method in ("POST", "DELETE"):
        answer = await send(guarded, method, "/faults", MONITORING)
        assert answer.status == HTTPStatus.FORBIDDEN
        assert "User:prometheus is for reading only" in answer.document["error"]
    assert running.broker.faults.documents() == []
    assert "refused to User:prometheus from 127.0.0.1:" in caplog.text
    caplog.clear()
    assert (await send(guarded, "POST", "/faults", OPERATOR)).status == HTTPStatus.CREATED
    assert (await send(guarded, "DELETE", "/faults/again", OPERATOR)).status == HTTPStatus.OK
    lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert [line.split()[:4] for line in lines] == [["a", "change", "by", "User:olga"]] * 2
    assert "from 127.0.0.1:" in lines[0]
    assert "POST /faults [{" in lines[0]
    assert '"name":"again"' in lines[0]
    assert "DELETE /faults/again {" in lines[1]
    assert OPERATOR not in caplog.text


async def test_a_log_line_stays_one_line(
    guarded: str, caplog: pytest.LogCaptureFixture, running: Running
) -> None:
    """Whatever a rule's name or a path contains."""
    caplog.set_level(logging.INFO, LOGGER)
    name = "x\\n2026-11-22 ERROR forged"
    body = f'{{"name": "{name}", "action": "twice"}}'.encode()
    sent = (f"Host: {guarded}", JSON, f"Authorization: Bearer {OPERATOR}")
    await ask(guarded, "POST /faults HTTP/1.1", *sent, body=body)
    await ask(guarded, "DELETE /faults/%0Aforged HTTP/1.1", *sent)
    assert len([one for one in caplog.records if one.name == LOGGER]) == 2
    assert not any("\n" in one.getMessage() for one in caplog.records if one.name == LOGGER)


async def test_pages_of_other_sites_are_refused_with_a_token_too(guarded: str) -> None:
    """The checks of `guard.py` come first."""
    answer = await send(guarded, "GET", "/topics", OPERATOR, "Origin: http://evil.example")
    assert answer.status == HTTPStatus.FORBIDDEN


async def test_an_open_port_takes_any_token(admin: AdminClient) -> None:
    """Commands may send one to a broker that asks for none."""
    headers = {"Authorization": "Bearer anything"}
    async with admin.session.get(f"{admin.url}/topics", headers=headers) as answer:
        assert answer.status == HTTPStatus.OK


# --- the configuration ---

OUTSIDE = ["--admin-listen", "0.0.0.0:8080"]


def test_other_machines_need_a_token_or_a_certificate() -> None:
    """Without either `serve` ends, and names what it takes."""
    with pytest.raises(ConfigError) as caught:
        load_config(OUTSIDE, {})
    for remedy in ("admin_token_file", "ssl_client_auth=required", "admin_insecure=true"):
        assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)
    assert load_config([*OUTSIDE, "--set", "admin_insecure=true"], {}).admin_insecure
    assert load_config([*OUTSIDE, "--set", "admin_token_file=x"], {}).admin_token_file == "x"
    assert load_config(["--admin-listen", "[::1]:1"], {}).admin_listen.is_loopback


@pytest.mark.parametrize(
    ("client_auth", "is_enough"), [("required", True), ("requested", False), ("none", False)]
)
def test_only_required_certificates_replace_a_token(client_auth: str, is_enough: bool) -> None:
    """Asking for one admits a client without any."""
    tls = {
        "listener_security_protocol_map": "ADMIN:SSL",
        "ssl_keystore_location": "k",
        "ssl_truststore_location": "t",
        "ssl_client_auth": client_auth,
    }
    pairs = [part for item in tls.items() for part in ("--set", "=".join(item))]
    if is_enough:
        load_config([*OUTSIDE, *pairs], {})
        return
    with pytest.raises(ConfigError, match="admin_token_file"):
        load_config([*OUTSIDE, *pairs], {})


def test_a_commands_token_is_no_option_of_the_broker() -> None:
    """It may be in the environment that both share."""
    load_config([], {"ECHOLESS_ADMIN_TOKEN": OPERATOR})


# --- certificates ---


@pytest.mark.slow
def test_a_certificate_is_enough_for_a_change(
    tmp_path: Path, start_echoless: Callable[..., Echoless]
) -> None:
    """The log names the principal of the certificate; without one there is no connection."""
    authority = Authority(tmp_path / "authority")
    settings = authority.settings("ADMIN:SSL", ssl_client_auth="required")
    broker = start_echoless(settings, arguments=["--allow-faults"])
    context = authority.client_context(authority.issue("olga"))
    url = f"https://{broker.admin_address}/faults"
    request = urllib.request.Request(url, RULE, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=context) as answer:
        assert answer.status == HTTPStatus.CREATED
    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        urllib.request.urlopen(url, context=authority.client_context())
    assert broker.terminate() == 0  # which completes the log
    assert "a change by User:CN=olga" in broker.process.log()
