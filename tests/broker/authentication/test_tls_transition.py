"""TLS that is turned on between running brokers: the native port takes both for a while, and peers are called as they speak."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from echoless.broker.authentication.tls import BrokerTls
from echoless.broker.config.loading import Config, ConfigError, load_config
from echoless.broker.config.values import PlaintextAddress, parse_address
from echoless.broker.replication.peers import PeerError, TcpPeers
from tests.broker.until import until
from tests.support.certificates import Authority
from tests.support.in_process import in_process
from tests.support.native_client import NativeConnection
from tests.support.principals import Principals

_PATIENCE_S = 120.0
_ASK = {"type": "metadata", "topics": []}
BOTH = {"native_accepts_plaintext": "true"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def config_of(settings: dict[str, str]) -> Config:
    return load_config(
        [part for item in settings.items() for part in ("--set", "=".join(item))], {}
    )


async def test_the_native_port_takes_both(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate names its owner; without TLS a client is anonymous, and the log says that it was there."""
    settings = authority.settings("NATIVE:SSL", ssl_client_auth="required", **BOTH)
    config, principals = config_of(settings), Principals()
    chosen = {name: getattr(config, name) for name in settings}
    with caplog.at_level(logging.INFO):
        async with in_process(tmp_path, access=principals, **chosen) as running:
            plain = await NativeConnection.open(running.native_address)
            await plain.call("metadata", topics=[], correlation_id=1)
            assert running.broker.tls is not None
            peers = TcpPeers(running.broker.tls.client_context)
            address = parse_address(running.native_address)
            await peers.call(1, address, _ASK, timeout_s=_PATIENCE_S)
            await plain.call("metadata", topics=[], correlation_id=2)
            await plain.close()
            await peers.close()
    named = [one.partition(",")[0] for one in principals.seen]
    assert named == ["User:ANONYMOUS", "User:CN=broker", "User:ANONYMOUS"]
    assert "has connected without TLS, which native_accepts_plaintext allows" in caplog.text


async def test_a_connection_that_says_nothing_counts_as_a_handshake(
    tmp_path: Path, authority: Authority
) -> None:
    """It ends with the time of one, and one that goes at once leaves nothing behind."""
    settings = authority.settings("NATIVE:SSL", ssl_handshake_timeout_ms="200", **BOTH)
    config = config_of(settings)
    chosen = {name: getattr(config, name) for name in settings}
    async with in_process(tmp_path, **chosen) as running:
        address = parse_address(running.native_address)
        reader, writer = await asyncio.open_connection(*address)
        _, gone = await asyncio.open_connection(*address)
        gone.close()
        assert await asyncio.wait_for(reader.read(), _PATIENCE_S) == b""
        writer.close()
        await until(lambda: not running.broker.metrics.connections_open)


async def test_a_peer_is_called_as_it_has_registered(tmp_path: Path, authority: Authority) -> None:
    """One that has not restarted yet speaks plaintext; without the setting its registration does not count."""
    tls = BrokerTls(config_of(authority.settings("NATIVE:SSL")))
    async with in_process(tmp_path) as running:
        address = parse_address(running.native_address)
        peers = TcpPeers(tls.client_context)
        with pytest.raises(PeerError, match=r"TLS handshake .*does it speak TLS there\?|SSL"):
            await peers.call(1, address, _ASK, timeout_s=_PATIENCE_S)
        await peers.close()
        peers = TcpPeers(tls.client_context)
        plaintext = PlaintextAddress(*address)
        answer = await peers.call(1, plaintext, _ASK, timeout_s=_PATIENCE_S)
        assert answer["error"]["code"] == 0
        await peers.close()


async def test_the_end_of_a_connection_has_a_reason() -> None:
    """The system gives none for a peer that resets a connection, in the handshake or after it."""

    async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(end, "127.0.0.1", 0)
    address = parse_address("{}:{}".format(*server.sockets[0].getsockname()))
    for context in (None, ssl.create_default_context):
        peers = TcpPeers(context)
        with pytest.raises(PeerError) as ended:
            await peers.call(1, address, _ASK, timeout_s=_PATIENCE_S)
        reason = str(ended.value).partition(f"{address}: ")[2]
        assert reason.startswith("the connection ended")
        assert not reason.endswith(": ")
        await peers.close()
    server.close()


@pytest.mark.parametrize(
    ("protocol", "more", "reason"),
    [
        ("PLAINTEXT", {}, "takes true only where listener_security_protocol_map gives NATIVE TLS"),
        ("SASL_SSL", {"sasl_enabled_mechanisms": "PLAIN"}, "takes plaintext too"),
    ],
)
def test_a_setting_that_makes_no_sense_or_shows_passwords_is_refused(
    authority: Authority, protocol: str, more: dict[str, str], reason: str
) -> None:
    """Nothing is encrypted, so there is nothing to take besides; and PLAIN must not go over plaintext."""
    settings = authority.settings(f"NATIVE:{protocol}", **BOTH, **more)
    with pytest.raises(ConfigError, match=reason):
        config_of({**settings, "native_listen": "10.0.0.1:9093"})
