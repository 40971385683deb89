"""Every byte before a log-in, changed or cut off, on every kind of listener.

A recorded log-in of a good client is played with each of its bytes changed, and cut off at each of them. The broker
admits no one but the user, has no bug to report, keeps no connection, and lets the good client log in again.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest

from echoless.protocol.sasl.oauthbearer import bearer_message
from echoless.protocol.sasl.plain import plain_token
from tests.broker.authentication.log_in import PASSWORD, log_in, with_users
from tests.support.certificates import Authority
from tests.support.in_process import Running
from tests.support.principals import Principals
from tests.support.raw_client import RawConnection
from tests.support.tokens import Issuer

pytestmark = pytest.mark.slow

SEED = 7
AT_ONCE = 50
TLS_TRIES = 60
_PATIENCE_S = 120.0
_READ_S = 10.0
_SETTINGS = {
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "connection_failed_authentication_delay_ms": "0",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"), "ES256")


class Target(NamedTuple):
    """A broker, and who has asked it for anything."""

    running: Running
    principals: Principals


@asynccontextmanager
async def serving(
    directory: Path, authority: Authority, issuer: Issuer, protocols: str
) -> AsyncIterator[Target]:
    """Fails if the broker is not what it was before."""
    principals = Principals()
    settings = authority.settings(protocols, **{**issuer.settings(), **_SETTINGS})
    async with with_users(directory, "alice", access=principals, **settings) as running:
        yield Target(running, principals)
        metrics = running.broker.metrics
        async with asyncio.timeout(_PATIENCE_S):
            while metrics.connections_open:  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.01)
        assert set(principals.seen) <= {"User:alice", "User:ANONYMOUS"}
        assert metrics.requests_failed_total == 0
        assert running.broker.request_memory.used == 0


def frame(*parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack(">i", len(data)) + data


def request(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", key, version, 1, 4) + b"fuzz" + b"\0" * flexible
    return frame(header, body)


def mechanism(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()


def by_request(name: str, token: bytes) -> bytes:
    """ApiVersions, SaslHandshake, SaslAuthenticate, and what a client asks first."""
    return (
        request(18, 0, b"")
        + request(17, 1, mechanism(name))
        + request(36, 1, struct.pack(">i", len(token)) + token)
        + request(3, 1, struct.pack(">i", 0))
    )


def raw(name: str, token: bytes) -> bytes:
    """The same, before KIP-152."""
    return request(17, 0, mechanism(name)) + frame(token) + request(3, 1, struct.pack(">i", 0))


def native(name: str, token: bytes) -> bytes:
    return b"".join(
        frame(msgpack.packb(one))
        for one in (
            {"type": "hello", "version": 1, "client_id": "fuzz", "correlation_id": 1},
            {"type": "sasl", "mechanism": name, "data": token, "correlation_id": 2},
            {"type": "metadata", "topics": [], "correlation_id": 3},
        )
    )


SCRAM_FIRST = b"n,a=alice,n=alice,r=abcdefgh"
PLAIN = plain_token("alice", PASSWORD)


def variants(good: bytes, rng: random.Random) -> list[bytes]:
    """The log-in cut off after each byte, and with each byte changed; and bytes that are none."""
    cut = [good[:end] for end in range(len(good))]
    changed = [
        good[:at] + bytes([good[at] ^ rng.randrange(1, 256)]) + good[at + 1 :]
        for at in range(len(good))
    ]
    extreme = [
        good[:at] + edge + good[at + len(edge) :]
        for at in range(0, len(good) - 4, 8)
        for edge in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0")
    ]
    return [*cut, *changed, *extreme, *(rng.randbytes(rng.randrange(200)) for _ in range(50))]


async def play(
    address: str, tries: list[bytes], context: ssl.SSLContext | None = None, at_once: int = AT_ONCE
) -> None:
    """Sends each on a connection of its own, ends its side, and reads until the broker ends the other."""
    turn = asyncio.Semaphore(at_once)
    host, _, port = address.rpartition(":")

    async def send(data: bytes) -> None:
        async with turn:
            with suppress(ConnectionError, ssl.SSLError):
                reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
                try:
                    writer.write(data)
                    if writer.can_write_eof():
                        writer.write_eof()
                        async with asyncio.timeout(_READ_S):
                            await reader.read(-1)
                    else:
                        await writer.drain()
                finally:
                    writer.close()
                    await writer.wait_closed()

    await asyncio.gather(*map(send, tries))


async def logs_in(address: str, context: ssl.SSLContext | None = None) -> None:
    connection = await RawConnection.open(address, context)
    assert (await log_in(connection)).error_code == 0
    await connection.close()


KAFKA: dict[str, Callable[[Issuer], bytes]] = {
    "PLAIN": lambda _: by_request("PLAIN", PLAIN),
    "SCRAM": lambda _: by_request("SCRAM-SHA-256", SCRAM_FIRST),
    "OAUTHBEARER": lambda issuer: by_request("OAUTHBEARER", bearer_message(issuer.token())),
    "raw PLAIN": lambda _: raw("PLAIN", PLAIN),
    "raw SCRAM": lambda _: raw("SCRAM-SHA-256", SCRAM_FIRST),
}


@pytest.mark.parametrize("kind", KAFKA)
async def test_sasl_on_the_kafka_port(
    tmp_path: Path, authority: Authority, issuer: Issuer, kind: str, caplog: Any
) -> None:
    """By each mechanism, and without requests around the tokens."""
    tries = variants(KAFKA[kind](issuer), random.Random(SEED))
    async with serving(tmp_path, authority, issuer, "PLAINTEXT:SASL_PLAINTEXT") as target:
        await play(target.running.kafka_address, tries)
        await logs_in(target.running.kafka_address)
    assert not has_bug(caplog)


async def test_sasl_on_the_native_port(
    tmp_path: Path, authority: Authority, issuer: Issuer, caplog: Any
) -> None:
    """Messages and their fields as well."""
    rng = random.Random(SEED)
    tries = variants(native("PLAIN", PLAIN), rng) + variants(
        native("SCRAM-SHA-256", SCRAM_FIRST), rng
    )
    async with serving(tmp_path, authority, issuer, "NATIVE:SASL_PLAINTEXT") as target:
        await play(target.running.native_address, tries)
    assert not has_bug(caplog)


def client_hello(authority: Authority) -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_a_tls_handshake(
    tmp_path: Path, authority: Authority, issuer: Issuer, protocol: str, caplog: Any
) -> None:
    """The first message of a client; the rest of a handshake is OpenSSL's own business."""
    rng = random.Random(SEED)
    tries = rng.sample(variants(client_hello(authority), rng), 400)
    async with serving(
        tmp_path, authority, issuer, f"PLAINTEXT:{protocol},NATIVE:SASL_PLAINTEXT"
    ) as target:
        await play(target.running.kafka_address, tries)
        context = authority.client_context()
        if protocol == "SASL_SSL":
            await logs_in(target.running.kafka_address, context)
        else:
            connection = await RawConnection.open(target.running.kafka_address, context)
            assert (await connection.call("api_versions", 0)).error_code == 0
            await connection.close()
    assert not has_bug(caplog)


async def test_sasl_within_tls(
    tmp_path: Path, authority: Authority, issuer: Issuer, caplog: Any
) -> None:
    """Fewer tries, as each one needs a handshake."""
    rng, context = random.Random(SEED), authority.client_context()
    tries = rng.sample(variants(by_request("PLAIN", PLAIN), rng), TLS_TRIES)
    async with serving(tmp_path, authority, issuer, "PLAINTEXT:SASL_SSL") as target:
        await play(target.running.kafka_address, tries, context, at_once=8)
        await logs_in(target.running.kafka_address, context)
    assert not has_bug(caplog)


def has_bug(caplog: Any) -> bool:
    """Whether the log has a traceback, or a line that names a bug."""
    return any(one.exc_info or "bug" in one.getMessage() for one in caplog.records)


async def test_the_recorded_log_ins_are_good(
    tmp_path: Path, authority: Authority, issuer: Issuer
) -> None:
    """Whole and unchanged they are admitted; otherwise the tries above would prove little."""
    async with serving(
        tmp_path, authority, issuer, "PLAINTEXT:SASL_PLAINTEXT,NATIVE:SASL_PLAINTEXT"
    ) as target:
        admitted = ("PLAIN", "OAUTHBEARER", "raw PLAIN")
        for number, kind in enumerate(admitted, 1):
            await play(target.running.kafka_address, [KAFKA[kind](issuer)])
            assert target.running.broker.metrics.logins_total == number
        await play(target.running.native_address, [native("PLAIN", PLAIN)])
        assert target.running.broker.metrics.logins_total == len(admitted) + 1
