"""TLS on the Kafka, native and admin ports, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from echoless.broker.authentication.tls import BrokerTls
from echoless.broker.config.loading import Config, ConfigError, load_config
from echoless.broker.config.values import parse_address
from echoless.broker.replication.peers import PeerError, TcpPeers
from tests.broker.authentication.log_in import log_in, with_users
from tests.support.certificates import Authority
from tests.support.echoless import Echoless
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.principals import Principals
from tests.support.raw_client import (
    ConnectionEndedError,
    RawConnection,
    create_topic,
    message,
    nested,
)
from tests.support.session_client import send

BOTH = "PLAINTEXT:SSL,NATIVE:SSL"
_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def serving(
    directory: Path, settings: Mapping[str, str], *, access: Principals | None = None
) -> AsyncIterator[Running]:
    config = config_of(settings)
    chosen = {name: getattr(config, name) for name in settings}
    async with in_process(directory, access=access, **chosen) as running:
        yield running


def config_of(settings: Mapping[str, str]) -> Config:
    return load_config(
        [part for item in settings.items() for part in ("--set", "=".join(item))], {}
    )


async def refused(connection: RawConnection) -> None:
    """The end comes at the first read: with TLS 1.3 a client's own handshake succeeds before."""
    with pytest.raises((ConnectionEndedError, ssl.SSLError)):
        await connection.call("api_versions", 0)
    with contextlib.suppress(ssl.SSLError):  # the alert, once more
        await connection.close()


async def metadata(connection: RawConnection) -> Any:
    return await connection.call("metadata", 1, topics=None)


async def test_both_ports_answer_by_tls(tmp_path: Path, authority: Authority) -> None:
    """Frames larger than a TLS record too, in both directions; the client is anonymous."""
    principals, context = Principals(), authority.client_context()
    async with serving(tmp_path, authority.settings(BOTH), access=principals) as running:
        kafka = await RawConnection.open(running.kafka_address, context)
        await create_topic(kafka, "t", 1)
        native = await NativeConnection.open(running.native_address, context)
        hello = await native.call("hello", version=1, client_id="x", correlation_id=1)
        assert hello["error"]["code"] == 0
        records = [{"value": bytes(300_000)} for _ in range(3)]
        stored = await native.call(
            "produce", topic="t", partition=0, acks=1, records=records, correlation_id=2
        )
        assert (stored["error"]["code"], stored["base_offset"]) == (0, 0)
        found = await native.call(
            "fetch", topic="t", partition=0, offset=0, max_bytes=10_000_000, correlation_id=3
        )
        assert [len(one["value"]) for one in found["records"]] == [300_000] * 3
        await native.close()
        await kafka.close()
    assert set(principals.seen) == {"User:ANONYMOUS"}


async def test_a_client_that_leaves_while_it_waits_is_not_worth_a_warning(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Its Fetch is in progress: the connection ends at once, and anybody can do that again and again."""
    context = authority.client_context()
    async with serving(tmp_path, authority.settings("PLAINTEXT:SSL")) as running:
        connection = await RawConnection.open(running.kafka_address, context)
        await create_topic(connection, "t", 1)
        send(connection, (0, -1), {"t": [(0, 0)]}, max_wait_ms=60_000)
        other = await RawConnection.open(running.kafka_address, context)
        await metadata(other)
        await connection.close()
        await other.close()
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_the_certificate_names_the_client(tmp_path: Path, authority: Authority) -> None:
    """By its whole name, or as the rules map it (vector 31)."""
    alice = authority.issue("Alice", unit="Ops", organization="Acme, Inc")
    everyone = authority.settings("PLAINTEXT:SSL", ssl_client_auth="required")
    ruled = {**everyone, "ssl_principal_mapping_rules": r"RULE:^CN=(\w+),.*$/$1/L,DEFAULT"}
    whole = r"User:CN=Alice,OU=Ops,O=Acme\, Inc"
    for number, (settings, expected) in enumerate([(everyone, whole), (ruled, "User:alice")]):
        principals = Principals()
        async with serving(tmp_path / str(number), settings, access=principals) as running:
            context = authority.client_context(alice)
            connection = await RawConnection.open(running.kafka_address, context)
            await metadata(connection)
            await connection.close()
        assert principals.seen == [expected]


async def test_a_name_that_no_rule_maps_is_not_admitted(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection ends, and the log says why."""
    context = authority.client_context(authority.issue("mallory"))
    settings = authority.settings(
        "PLAINTEXT:SSL", ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^x$/y/"
    )
    async with serving(tmp_path, settings) as running:
        await refused(await RawConnection.open(running.kafka_address, context))
    assert "no rule of ssl_principal_mapping_rules maps" in caplog.text


async def test_a_certificate_names_no_one_where_clients_log_in(
    tmp_path: Path, authority: Authority
) -> None:
    """A name that no rule maps is admitted there, on both ports, and anonymous until the log-in."""
    principals, context = Principals(), authority.client_context(authority.issue("mallory"))
    settings = authority.settings(
        "PLAINTEXT:SASL_SSL,NATIVE:SASL_SSL",
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^x$/y/",
    )
    async with with_users(tmp_path, "alice", access=principals, **settings) as running:
        kafka = await RawConnection.open(running.kafka_address, context)
        assert (await kafka.call("api_versions", 0)).error_code == 0
        assert (await log_in(kafka)).error_code == 0
        await metadata(kafka)
        await kafka.close()
        native = await NativeConnection.open(running.native_address, context)
        hello = await native.call("hello", version=1, correlation_id=1)
        assert hello["error"]["code"] == 0
        await native.close()
    assert principals.seen == ["User:ANONYMOUS", "User:alice", "User:ANONYMOUS"]


async def test_who_has_no_certificate_of_ours_is_refused(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """None at all, or a stranger's: the end at the first read (vector 30)."""
    stranger = Authority(tmp_path / "stranger").issue("alice")
    settings = authority.settings("PLAINTEXT:SSL", ssl_client_auth="required")
    async with serving(tmp_path, settings) as running:
        for certificate in (None, stranger):
            context = authority.client_context(certificate)
            await refused(await RawConnection.open(running.kafka_address, context))
        with pytest.raises(ssl.SSLCertVerificationError):
            await RawConnection.open(running.kafka_address, ssl.create_default_context())
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.text
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


async def test_a_refused_client_is_told_why(tmp_path: Path, authority: Authority) -> None:
    """By an alert, which names what is wrong with its certificate."""
    certificates = {
        "certificate required": None,
        "unknown ca": Authority(tmp_path / "stranger").issue("alice"),
        "certificate expired": authority.issue("late", is_expired=True),
    }
    settings = authority.settings("PLAINTEXT:SSL", ssl_client_auth="required")
    async with serving(tmp_path, settings) as running:
        for alert, certificate in certificates.items():
            context = authority.client_context(certificate)
            with pytest.raises(ssl.SSLError, match=f"alert {alert}"):
                await asyncio.to_thread(read_one_byte, running.kafka_address, context)


def read_one_byte(address: str, context: ssl.SSLContext) -> None:
    """Connects, and reads: with TLS 1.3 a client learns then that it was refused."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        secure.recv(1)


async def test_a_certificate_that_is_only_requested_may_be_missing(
    tmp_path: Path, authority: Authority
) -> None:
    """The client is anonymous then."""
    principals = Principals()
    settings = authority.settings("PLAINTEXT:SSL", ssl_client_auth="requested")
    async with serving(tmp_path, settings, access=principals) as running:
        for certificate in (None, authority.issue("bob")):
            context = authority.client_context(certificate)
            connection = await RawConnection.open(running.kafka_address, context)
            await metadata(connection)
            await connection.close()
    assert principals.seen[0] == "User:ANONYMOUS"
    assert principals.seen[1].startswith("User:CN=bob,")


async def test_the_log_tells_plain_bytes_from_tls(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """On the port of the other kind, each with the remedy."""
    async with serving(tmp_path, authority.settings("PLAINTEXT:SSL")) as running:
        await refused(await RawConnection.open(running.kafka_address))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await NativeConnection.open(running.native_address, authority.client_context())
    assert "the client does not speak TLS" in caplog.text
    assert "TLS, which listener_security_protocol_map turns on" in caplog.text


@pytest.mark.slow
async def test_a_handshake_that_hangs_counts_and_ends(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Against `connections_max` while it lasts, and no longer than `ssl_handshake_timeout_ms`."""
    settings = authority.settings(
        "PLAINTEXT:SSL,NATIVE:SSL", connections_max="1", ssl_handshake_timeout_ms="1000"
    )
    async with serving(tmp_path, settings) as running:
        host, _, port = running.kafka_address.rpartition(":")
        silent, writer = await asyncio.open_connection(host, int(port))
        metrics = running.broker.metrics
        async with asyncio.timeout(_PATIENCE_S):
            await eventually(lambda: metrics.connections_open)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await NativeConnection.open(running.native_address, authority.client_context())
            assert metrics.connections_refused_total == 1
            assert await silent.read() == b""
            await eventually(lambda: not metrics.connections_open)
        writer.close()
        connection = await RawConnection.open(running.kafka_address, authority.client_context())
        await metadata(connection)
        assert metrics.connections_open == 1
        await connection.close()
    assert "a TLS handshake with 127.0.0.1" in caplog.text


@pytest.mark.slow
async def test_a_flood_of_handshakes_gives_way_to_another_address(
    tmp_path: Path, authority: Authority
) -> None:
    """As idle connections do: the oldest of the address that has most ends at once."""
    settings = authority.settings("PLAINTEXT:SSL", connections_max="4")
    async with serving(tmp_path, settings) as running:
        host, _, port = running.kafka_address.rpartition(":")
        silent = [
            await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            for source in ("127.0.0.1", "127.0.0.1", "127.0.0.3", "127.0.0.3")
        ]
        async with asyncio.timeout(_PATIENCE_S):
            await eventually(lambda: running.broker.metrics.connections_open == len(silent))
            while True:  # they give way once they are a second old
                try:
                    _, writer = await asyncio.open_connection(
                        host,
                        int(port),
                        ssl=authority.client_context(),
                        local_addr=("127.0.0.2", 0),
                    )
                    break
                except (ssl.SSLError, ConnectionError):
                    await asyncio.sleep(0.05)
        assert await silent[0][0].read() == b""
        for _, one in (*silent, (None, writer)):
            one.close()


async def test_a_stop_answers_what_is_in_flight(tmp_path: Path, authority: Authority) -> None:
    """A TLS connection cannot end one side alone; its client gets the answer and then the end."""
    async with serving(tmp_path, authority.settings("PLAINTEXT:SSL")) as running:
        context = authority.client_context()
        connection = await RawConnection.open(running.kafka_address, context)
        await create_topic(connection, "t", 1)
        connection.send_request(fetch_for_long())
        await eventually(lambda: running.broker.metrics.requests["fetch"])
        running.broker.begin_stop()
        answer = asyncio.ensure_future(connection.receive_response("fetch", 11))
    assert (await answer).error_code == 0
    with pytest.raises(ConnectionEndedError):
        await connection.receive()
    await connection.close()


def fetch_for_long() -> Any:
    row = nested("fetch", 11, "FetchPartition")(partition=0, fetch_offset=0, partition_max_bytes=1)
    return message("fetch", 11, "Request")(
        max_wait=datetime.timedelta(minutes=1),
        min_bytes=1,
        topics=(nested("fetch", 11, "FetchTopic")(topic="t", partitions=(row,)),),
        forgotten_topics_data=(),
    )


async def eventually(holds: Callable[[], object]) -> None:
    """Returns once it holds."""
    async with asyncio.timeout(_PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - counters announce nothing
            await asyncio.sleep(0.01)


async def serial_number(address: str, context: ssl.SSLContext) -> str:
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    number = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return str(number)


async def test_a_new_certificate_serves_the_connections_that_begin_later(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that are open live on (vector 32); files that cannot be used change nothing."""
    caplog.set_level(logging.INFO)
    own = authority.issue("first", to=tmp_path / "own.pem")
    settings = authority.settings("PLAINTEXT:SSL", ssl_keystore_location=str(own))
    context = authority.client_context()
    async with serving(tmp_path, settings) as running:
        tls = running.broker.tls
        assert tls is not None
        before = await serial_number(running.kafka_address, context)
        open_before = await RawConnection.open(running.kafka_address, context)
        authority.issue("second", to=own)
        await tls.reload()
        after = await serial_number(running.kafka_address, context)
        assert after != before
        own.write_text("nothing")
        await tls.reload()
        assert await serial_number(running.kafka_address, context) == after
        await metadata(open_before)
        await open_before.close()
    assert "new connections use the certificate of CN=second" in caplog.text
    assert "the certificate in use stays: ssl_keystore_location: " in caplog.text


async def test_a_new_list_of_authorities_holds_for_later_connections(
    tmp_path: Path, authority: Authority
) -> None:
    """One that is taken off it admits no one any more."""
    other = Authority(tmp_path / "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(other.path.read_bytes())
    settings = authority.settings(
        "PLAINTEXT:SSL", ssl_client_auth="required", ssl_truststore_location=str(trusted)
    )
    context = authority.client_context(other.issue("alice"))
    async with serving(tmp_path, settings) as running:
        connection = await RawConnection.open(running.kafka_address, context)
        await metadata(connection)
        await connection.close()
        assert running.broker.tls is not None
        trusted.write_bytes(authority.path.read_bytes())
        await running.broker.tls.reload()
        await refused(await RawConnection.open(running.kafka_address, context))


async def test_brokers_call_each_other_by_tls(tmp_path: Path, authority: Authority) -> None:
    """They show their own certificate, and check the other's and its host."""
    principals = Principals()
    settings = authority.settings("NATIVE:SSL", ssl_client_auth="required")
    async with serving(tmp_path, settings, access=principals) as running:
        assert running.broker.tls is not None
        address = parse_address(running.native_address)
        peers = TcpPeers(running.broker.tls.client_context)
        ask = {"type": "metadata", "topics": []}
        answer = await peers.call(1, address, ask, timeout_s=_PATIENCE_S)
        assert answer["error"]["code"] == 0
        await peers.close()
        stranger = Authority(tmp_path / "stranger").settings("NATIVE:SSL")
        peers = TcpPeers(BrokerTls(config_of(stranger)).client_context)
        with pytest.raises(PeerError, match="certificate"):
            await peers.call(1, address, ask, timeout_s=_PATIENCE_S)
        await peers.close()
    assert principals.seen[0].startswith("User:CN=broker,")


async def test_a_peer_with_the_certificate_of_another_host_is_not_called(
    tmp_path: Path, authority: Authority
) -> None:
    """Unless `ssl_endpoint_identification_algorithm` is none."""
    away = authority.issue("away", "broker-7.example", to=tmp_path / "away.pem")
    settings = authority.settings("NATIVE:SSL", ssl_keystore_location=str(away))
    lenient = {**settings, "ssl_endpoint_identification_algorithm": "none"}
    ask = {"type": "metadata", "topics": []}
    async with serving(tmp_path, settings) as running:
        address = parse_address(running.native_address)
        peers = TcpPeers(BrokerTls(config_of(settings)).client_context)
        with pytest.raises(PeerError, match="certificate"):
            await peers.call(1, address, ask, timeout_s=_PATIENCE_S)
        await peers.close()
        peers = TcpPeers(BrokerTls(config_of(lenient)).client_context)
        assert (await peers.call(1, address, ask, timeout_s=_PATIENCE_S))["error"]["code"] == 0
        await peers.close()


@pytest.mark.parametrize("option", ["ssl_keystore_location", "ssl_truststore_location"])
@pytest.mark.parametrize("content", [None, b"", b"\0\xff", b"-----BEGIN CERTIFICATE-----\nx"])
def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, authority: Authority, option: str, content: bytes | None
) -> None:
    """One line: the option, the file and the reason."""
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_bytes(content)
    settings = {**authority.settings("NATIVE:SSL"), option: str(path)}
    with pytest.raises(ConfigError, match=f"^{option}: .*file.pem cannot be used") as caught:
        BrokerTls(config_of(settings))
    assert "\n" not in str(caught.value)


def test_an_encrypted_key_needs_its_password(tmp_path: Path, authority: Authority) -> None:
    """No one is asked for it on a terminal, and a wrong one is not shown."""
    path = tmp_path / "encrypted.pem"
    key, rest = authority.issue("broker").read_bytes().split(b"-----BEGIN CERTIFICATE", 1)
    secret = serialization.BestAvailableEncryption(b"hunter2")
    encrypted = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret
    )
    path.write_bytes(encrypted + b"-----BEGIN CERTIFICATE" + rest)
    settings = authority.settings("NATIVE:SSL", ssl_keystore_location=str(path))
    BrokerTls(config_of({**settings, "ssl_keystore_password": "hunter2"}))
    for wrong in ({}, {"ssl_keystore_password": "hunter3"}):
        with pytest.raises(ConfigError, match="ssl_keystore_password") as caught:
            BrokerTls(config_of({**settings, **wrong}))
        assert "hunter" not in str(caught.value)


@pytest.mark.slow
def test_a_real_broker_by_tls_on_all_ports(tmp_path: Path, authority: Authority) -> None:
    """It registers what it speaks, takes a new certificate at SIGHUP, and stops within its time."""
    own = authority.issue("first", to=tmp_path / "own.pem")
    broker = Echoless(
        tmp_path,
        authority.settings("PLAINTEXT:SSL,NATIVE:SSL,ADMIN:SSL", ssl_keystore_location=str(own)),
    )
    broker.start()
    context = authority.client_context()
    url = f"https://{broker.admin_address}/health"
    with urllib.request.urlopen(url, context=context) as answer:
        assert answer.status == HTTPStatus.OK
    before = asyncio.run(serial_number(broker.kafka_address, context))
    authority.issue("second", to=own)
    os.kill(broker.process.pid, signal.SIGHUP)
    deadline = time.monotonic() + _PATIENCE_S
    while asyncio.run(serial_number(broker.native_address, context)) == before:
        assert time.monotonic() < deadline
    assert asyncio.run(serial_number(broker.admin_address, context)) != before
    assert broker.terminate() == 0


@pytest.mark.slow
def test_files_that_cannot_be_used_end_serve(tmp_path: Path, authority: Authority) -> None:
    """Exit code 2 and one line."""
    settings = authority.settings("ADMIN:SSL", ssl_keystore_location=str(tmp_path / "none.pem"))
    command = [*(sys.executable, "-m", "echoless.broker", "--data-dir", str(tmp_path / "data"))]
    for name in ("--listen", "--native-listen", "--admin-listen"):
        command += [name, "127.0.0.1:0"]
    command += [part for item in settings.items() for part in ("--set", "=".join(item))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("echoless serve: ssl_keystore_location: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_broker_without_tls_loads_none_of_it() -> None:
    """asyncio loads `ssl` by itself; what uses it is loaded for a listener that asks for it."""
    program = (
        "import sys, broker.serve, broker.assembly, broker.admin.server\n"
        "loaded = {'echoless.broker.authentication', 'echoless.broker.network.tls_acceptor'}\n"
        "sys.exit(str(loaded & sys.modules.keys()) if loaded & sys.modules.keys() else 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
