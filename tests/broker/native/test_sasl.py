"""Log-ins on the native port, of clients and of other brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.values import parse_address
from echoless.broker.replication.peer_login import PeerLogin
from echoless.broker.replication.peers import PeerError, TcpPeers
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism
from echoless.protocol.sasl.plain import plain_token
from echoless.protocol.sasl.scram_client import ScramClient
from tests.broker.authentication.log_in import PASSWORD, SHA_256, with_users
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.principals import Principals

_PATIENCE_S = 120.0


async def sasl(connection: NativeConnection, mechanism: str, data: bytes) -> dict[str, Any]:
    return await connection.call("sasl", correlation_id=1, mechanism=mechanism, data=data)


async def ends(connection: NativeConnection) -> None:
    with pytest.raises((EOFError, ConnectionError)):
        await connection.receive()
    await connection.close()


@pytest.mark.parametrize("message", ["produce", "replica_fetch", "metadata", "init_producer_id"])
async def test_nothing_passes_before_a_log_in(tmp_path: Path, message: str) -> None:
    """34 for any other message, and the end (vector 63); `hello` may come first."""
    async with with_users(tmp_path) as running:
        connection = await NativeConnection.open(running.native_address)
        hello = await connection.call("hello", correlation_id=1, version=1)
        assert hello["error"]["code"] == 0
        assert (hello["broker_id"], hello["cluster_id"]) == (-1, "")
        answer = await connection.call(message, correlation_id=2)
        assert answer["error"]["code"] == ErrorCode.ILLEGAL_SASL_STATE
        assert (answer["type"], answer["correlation_id"]) == (message, 2)
        await ends(connection)


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_a_log_in(tmp_path: Path, mechanism: Mechanism) -> None:
    """Its messages are the user's from then on; there is no second one."""
    principals = Principals()
    async with with_users(tmp_path, "alice", access=principals) as running:
        connection = await NativeConnection.open(running.native_address)
        if mechanism is Mechanism.PLAIN:
            answer = await sasl(connection, mechanism, plain_token("alice", PASSWORD))
        else:
            exchange = ScramClient(mechanism, "alice", PASSWORD)
            first = await sasl(connection, mechanism, exchange.first())
            assert not first["is_complete"]
            answer = await sasl(connection, mechanism, exchange.final(first["data"]))
            exchange.check(answer["data"])
        assert (answer["is_complete"], answer["session_lifetime_ms"]) == (True, 0)
        hello = await connection.call("hello", correlation_id=4, version=1)
        assert (hello["broker_id"], bool(hello["cluster_id"])) == (1, True)
        metadata = await connection.call("metadata", correlation_id=2, topics=[])
        assert metadata["error"]["code"] == 0
        again = await sasl(connection, mechanism, b"")
        assert again["error"]["code"] == ErrorCode.ILLEGAL_SASL_STATE
        assert (await connection.call("metadata", correlation_id=3, topics=[]))["error"][
            "code"
        ] == 0
        await connection.close()
    assert principals.seen == ["User:ANONYMOUS", "User:alice"]


async def test_a_log_in_that_fails(tmp_path: Path) -> None:
    """58, or 33 for a mechanism that is off, and the end."""
    async with with_users(tmp_path, "alice", sasl_enabled_mechanisms="PLAIN") as running:
        connection = await NativeConnection.open(running.native_address)
        answer = await sasl(connection, "PLAIN", plain_token("alice", "wrong"))
        assert answer["error"]["code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        await ends(connection)
        connection = await NativeConnection.open(running.native_address)
        answer = await sasl(connection, SHA_256, b"n,,n=alice,r=abc")
        assert answer["error"]["code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert "PLAIN" in answer["error"]["message"]
        await ends(connection)


async def test_a_token_that_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is named, by its client's mistake and not a bug, and the client may try again."""
    async with with_users(tmp_path, "alice") as running:
        connection = await NativeConnection.open(running.native_address)
        for left_out in ({}, {"data": None}):
            answer = await connection.call("sasl", correlation_id=1, mechanism="PLAIN", **left_out)
            assert answer["error"]["code"] == ErrorCode.INVALID_REQUEST
            assert answer["error"]["message"] == "sasl: the field data is missing"
        answer = await sasl(connection, "PLAIN", plain_token("alice", PASSWORD))
        assert answer["is_complete"]
        await connection.close()
    assert "bug" not in caplog.text


async def test_a_port_without_sasl_has_nothing_to_log_in_for(native: NativeConnection) -> None:
    """34, and the connection stays."""
    answer = await sasl(native, "PLAIN", b"\0alice\0pw")
    assert answer["error"]["code"] == ErrorCode.ILLEGAL_SASL_STATE
    assert (await native.call("metadata", correlation_id=3, topics=[]))["error"]["code"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_a_session_between_brokers_is_renewed(
    tmp_path: Path, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the connection that they have, and calls go on meanwhile."""
    monkeypatch.setattr("echoless.broker.replication.peer_connection._RENEWED_AT", 0.02)
    ask = {"type": "metadata", "topics": []}
    async with with_users(tmp_path, "broker", connections_max_reauth_ms="60000") as running:
        peers = TcpPeers(login=PeerLogin(mechanism, "broker", PASSWORD))
        address, metrics = parse_address(running.native_address), running.broker.metrics
        async with asyncio.timeout(_PATIENCE_S):
            while metrics.logins_total < 2:
                answer = await peers.call(1, address, ask, timeout_s=_PATIENCE_S)
                assert answer["error"]["code"] == 0
                await asyncio.sleep(0.01)
        assert metrics.connections_accepted_total == 1
        await peers.close()


async def called(running: Running, login: PeerLogin | None) -> dict[str, Any]:
    """The answer to another broker that logs in so."""
    peers = TcpPeers(login=login)
    ask = {"type": "metadata", "topics": []}
    address = parse_address(running.native_address)
    try:
        return await peers.call(1, address, ask, timeout_s=_PATIENCE_S)
    finally:
        await peers.close()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_brokers_log_in_to_each_other(tmp_path: Path, mechanism: Mechanism) -> None:
    """By the user of `sasl_inter_broker_username`; a wrong password ends the call and is not shown."""
    principals = Principals()
    async with with_users(tmp_path, "broker", access=principals) as running:
        login = PeerLogin(mechanism, "broker", PASSWORD)
        assert PASSWORD not in repr(login)
        assert (await called(running, login))["error"]["code"] == 0
        with pytest.raises(PeerError, match="its log-in: Authentication failed") as caught:
            await called(running, login._replace(password="hunter2"))
        assert "hunter2" not in str(caught.value)
        assert (await called(running, None))["error"]["code"] == ErrorCode.ILLEGAL_SASL_STATE
    assert principals.seen[:2] == ["User:ANONYMOUS", "User:broker"]
