"""A broker whose listeners have settings of their own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from echoless.broker.config.loading import ConfigError
from tests.broker.authentication.log_in import SHA_256, handshake, log_in, with_users
from tests.support.certificates import Authority
from tests.support.raw_client import RawConnection

UNSUPPORTED = 33


async def common_name(address: str, context: ssl.SSLContext) -> str:
    """The common name in the certificate of the listener there."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    del reader
    return dict(pair for (pair,) in certificate["subject"])["commonName"]


async def test_each_listener_shows_its_own_certificate(tmp_path: Path) -> None:
    """And asks for one or not; all are read again by one signal."""
    authority = Authority(tmp_path / "authority")
    own = {"ssl_keystore_location": str(authority.issue("own"))}
    settings = authority.settings("PLAINTEXT:SSL,NATIVE:SSL")
    context = authority.client_context()
    overrides = {"NATIVE": own}
    async with with_users(tmp_path, listener_overrides=overrides, **settings) as running:
        assert await common_name(running.kafka_address, context) == "broker"
        assert await common_name(running.native_address, context) == "own"
        assert running.broker.tls is not None
        authority.issue("renewed", to=tmp_path / "authority" / "own.pem")
        await running.broker.tls.reload()
        assert await common_name(running.kafka_address, context) == "broker"
        assert await common_name(running.native_address, context) == "renewed"


async def test_a_file_of_a_listener_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """By its table."""
    authority = Authority(tmp_path / "authority")
    overrides = {"NATIVE": {"ssl_keystore_location": str(tmp_path / "none.pem")}}
    settings = authority.settings("PLAINTEXT:SSL,NATIVE:SSL")
    with pytest.raises(ConfigError, match=r"^listener\.native\.ssl_keystore_location: .*none\.pem"):
        async with with_users(tmp_path, listener_overrides=overrides, **settings):
            pass


async def test_each_listener_has_its_own_mechanisms_and_sessions(tmp_path: Path) -> None:
    """PLAIN on one, SCRAM alone on the other, whose sessions end."""
    overrides = {
        "PLAINTEXT": {
            "sasl_enabled_mechanisms": ("SCRAM-SHA-256",),
            "connections_max_reauth_ms": 60_000,
        }
    }
    async with with_users(tmp_path, "alice", listener_overrides=overrides) as running:
        connection = await RawConnection.open(running.kafka_address)
        answer = await handshake(connection, "PLAIN")
        assert answer.error_code == UNSUPPORTED
        assert list(answer.mechanisms) == ["SCRAM-SHA-256"]
        connection = await RawConnection.open(running.kafka_address)
        answer = await log_in(connection, mechanism=SHA_256)
        assert answer.session_lifetime.total_seconds() == 60
        await connection.close()
        assert running.broker.logins is not None
        assert "PLAIN" in running.broker.logins.mechanisms, "other listeners have it"
