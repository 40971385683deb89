"""Bounds on what a client may hold before it has logged in: time, connections, log lines."""

from __future__ import annotations

import asyncio
import ssl
import struct
from pathlib import Path

import pytest

from echoless.broker.authentication.session import LoginSession
from echoless.broker.limited_log import BURST
from echoless.protocol.errors import ErrorCode
from tests.broker.authentication.log_in import (
    PASSWORD,
    SHA_256,
    ends,
    handshake,
    log_in,
    with_users,
)
from tests.broker.authentication.test_sasl import metadata
from tests.support.certificates import Authority
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection

SOON = {"connection_login_timeout_ms": "50"}
_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


async def until_closed(connection: RawConnection) -> None:
    """Whatever was answered before."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                if not await connection._reader.read(1000):
                    break
            except ConnectionError:
                break
    await connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0",
        struct.pack(">i", 500_000) + b"\0\x11",
        struct.pack(">ihhih", 10, 18, 0, 1, -1),
        struct.pack(">ihhihh5s", 17, 17, 1, 1, -1, 5, b"PLAIN"),
        struct.pack(">ihhihh5s", 17, 17, 0, 1, -1, 5, b"PLAIN") + struct.pack(">i", 100) + b"x",
    ],
    ids=["nothing", "a byte", "part of a frame", "versions", "a handshake", "part of a raw token"],
)
async def test_a_log_in_that_stalls_is_ended(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """However far it has come (slow loris); the log names the setting."""
    async with with_users(tmp_path, **SOON) as running:
        connection = await RawConnection.open(running.kafka_address)
        connection.send_bytes(sent)
        await until_closed(connection)
        assert running.broker.metrics.logins_failed_total == 1
    assert "has not logged in within 50 ms (connection_login_timeout_ms)" in caplog.text


async def test_a_client_that_sends_a_byte_now_and_then_is_ended(tmp_path: Path) -> None:
    """Activity does not help, nor do questions that are answered."""
    async with with_users(tmp_path, **SOON) as running:
        connection = await RawConnection.open(running.kafka_address)
        async with asyncio.timeout(_PATIENCE_S):
            while not running.broker.metrics.logins_failed_total:
                connection.send(18, 99, b"", flexible=True)
                await asyncio.sleep(0.001)
        await connection.close()


async def test_the_native_port_and_tls(tmp_path: Path, authority: Authority) -> None:
    """Have the same limit; with TLS it begins after the handshake, which has one of its own."""
    settings = authority.settings("PLAINTEXT:SASL_SSL,NATIVE:SASL_SSL", **SOON)
    async with with_users(tmp_path, **settings) as running:
        context = authority.client_context()
        await until_closed(await RawConnection.open(running.kafka_address, context))
        native = await NativeConnection.open(running.native_address, context)
        with pytest.raises((EOFError, ConnectionError, ssl.SSLError)):
            await native.receive()
        await native.close()
        assert running.broker.metrics.logins_failed_total == 2


async def test_a_client_that_has_logged_in_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time limit is forgotten, as is that of a connection that has ended."""
    begun: list[asyncio.TimerHandle] = []
    begin = LoginSession.begin_deadline

    def recorded(self: LoginSession) -> None:
        begin(self)
        assert self._deadline is not None
        begun.append(self._deadline)

    monkeypatch.setattr(LoginSession, "begin_deadline", recorded)
    async with with_users(tmp_path, "alice") as running:
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection)).error_code == 0
        assert [one.cancelled() for one in begun] == [True]
        other = await RawConnection.open(running.kafka_address)
        await other.call("api_versions", 0)
        assert [one.cancelled() for one in begun] == [True, False]
        await other.close()
        async with asyncio.timeout(_PATIENCE_S):
            while running.broker.metrics.connections_open > 1:  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.01)
        assert [one.cancelled() for one in begun] == [True, True]
        assert (await metadata(connection)).brokers
        await connection.close()


async def test_an_address_holds_few_connections_before_it_logs_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another address is not concerned, and neither is one that has logged in."""
    settings = {"connections_max_unauthenticated_per_ip": "2"}
    async with with_users(tmp_path, "alice", **settings) as running:
        admitted = [await RawConnection.open(running.kafka_address) for _ in range(2)]
        for one in admitted:
            assert (await log_in(one)).error_code == 0
        strangers = [await RawConnection.open(running.kafka_address) for _ in range(2)]
        for one in strangers:
            assert (await one.call("api_versions", 0)).error_code == 0
        await ends(await RawConnection.open(running.kafka_address))
        assert running.broker.metrics.connections_refused_total == 1
        other = await RawConnection.open(running.kafka_address, source="127.0.0.2")
        assert (await log_in(other)).error_code == 0
        assert (await log_in(strangers[0], mechanism=SHA_256)).error_code == 0
        late = await RawConnection.open(running.kafka_address)
        assert (await log_in(late)).error_code == 0
        for one in (*admitted, *strangers, other, late):
            await one.close()
    assert "connections_max_unauthenticated_per_ip" in caplog.text


async def test_strangers_leave_half_of_the_connections_to_others(tmp_path: Path) -> None:
    """However many one address may have by the setting."""
    async with with_users(tmp_path, "alice", connections_max="4") as running:
        strangers = [await RawConnection.open(running.kafka_address) for _ in range(2)]
        for one in strangers:
            await one.call("api_versions", 0)
        await ends(await RawConnection.open(running.kafka_address))
        other = await RawConnection.open(running.kafka_address, source="127.0.0.2")
        assert (await log_in(other)).error_code == 0
        for one in (*strangers, other):
            await one.close()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_handshakes_count_as_well(
    tmp_path: Path, authority: Authority, protocol: str
) -> None:
    """Any listener with TLS counts them; a finished one does not count where no one logs in."""
    listeners = f"PLAINTEXT:{protocol},NATIVE:SASL_PLAINTEXT"
    settings = authority.settings(listeners, connections_max_unauthenticated_per_ip="1")
    async with with_users(tmp_path, "alice", **settings) as running:
        hanging = await RawConnection.open(running.kafka_address)
        async with asyncio.timeout(_PATIENCE_S):
            while not running.broker.metrics.connections_open:  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.01)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await RawConnection.open(running.kafka_address, authority.client_context())
        await hanging.close()
        async with asyncio.timeout(_PATIENCE_S):
            while running.broker.metrics.connections_open:  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.01)
        good = []
        for _ in range(3):
            one = await RawConnection.open(running.kafka_address, authority.client_context())
            if protocol == "SASL_SSL":
                assert (await log_in(one)).error_code == 0
            else:
                assert (await metadata(one)).brokers
            good.append(one)
        for one in good:
            await one.close()


@pytest.mark.slow
async def test_many_failed_log_ins_leave_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No connection, no record of who it was, and not a log line for each."""
    tries = 2 * BURST
    at_once = {"connection_failed_authentication_delay_ms": "0"}
    async with with_users(tmp_path, "alice", **at_once) as running:
        for number in range(tries):
            connection = await RawConnection.open(running.kafka_address)
            answer = await log_in(connection, f"user\n{number}", PASSWORD, SHA_256)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await connection.close()
        assert running.broker.metrics.logins_failed_total == tries
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection)).error_code == 0
        await connection.close()
    lines = [one for one in caplog.messages if "has failed" in one]
    assert BURST <= len(lines) < tries
    assert all("\n" not in one for one in lines)


async def test_a_handshake_may_not_be_repeated_without_end(tmp_path: Path) -> None:
    """A second one before the log-in is the end."""
    async with with_users(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        assert (await handshake(connection, "PLAIN")).error_code == 0
        assert (await handshake(connection, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await ends(connection)
