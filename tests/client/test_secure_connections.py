"""Our own clients over TLS and SASL: each log-in, each refusal, and sessions that end under load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from echoless.broker.authentication import session
from echoless.broker.metadata.topic import NewTopic
from echoless.client.async_producer import AsyncProducer
from echoless.client.connection import BrokerConnection
from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.client.security import Security
from echoless.client.security_options import security_of
from echoless.client.sequencer_actions import AfterFailure
from echoless.client.settings import Settings
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism
from tests.broker.authentication.log_in import PASSWORD, add_user, with_users
from tests.support.acls import AclEditor
from tests.support.certificates import Authority
from tests.support.in_process import Running
from tests.support.stored_values import read_stored_values

PATIENCE_S = 60.0
ASK = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def secure(directory: Path, authority: Authority, **settings: Any) -> AsyncIterator[Running]:
    """A broker with SASL_SSL on both ports, and the user alice."""
    chosen = authority.settings("PLAINTEXT:SASL_SSL,NATIVE:SASL_SSL", **settings)
    async with with_users(
        directory, "alice", connection_failed_authentication_delay_ms="0", **chosen
    ) as running:
        yield running


def options(authority: Authority, mechanism: str = "SCRAM-SHA-256", **more: str) -> Security:
    """Those of alice; `more`: names with underscores."""
    return security_of(
        {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.path),
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def quick(security: Security, **more: Any) -> Settings:
    return Settings(security=security, retry_backoff_s=0.001, retry_backoff_max_s=0.01, **more)


def host_and_port(running: Running) -> tuple[str, int]:
    host, _, port = running.kafka_address.rpartition(":")
    return host, int(port)


async def open_blocking(running: Running, security: Security) -> Any:
    """The topics that a blocking connection sees."""
    host, port = host_and_port(running)

    def work() -> Any:
        with BrokerConnection.open(host, port, PATIENCE_S, security) as connection:
            return connection.request("metadata", ASK).brokers

    return await asyncio.to_thread(work)


async def open_pipelined(running: Running, security: Security) -> Any:
    connection = await PipelinedConnection.open(*host_and_port(running), PATIENCE_S, security)
    try:
        return (await connection.send("metadata", ASK)).brokers
    finally:
        await connection.close()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_each_mechanism_logs_in(
    tmp_path: Path, authority: Authority, mechanism: Mechanism
) -> None:
    """Over SASL_SSL, with the host name compared, by both kinds of connection."""
    async with secure(tmp_path, authority) as running:
        security = options(authority, mechanism)
        assert len(await open_blocking(running, security)) == 1
        assert len(await open_pipelined(running, security)) == 1


@pytest.mark.parametrize("open_one", [open_blocking, open_pipelined])
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl_password": "wrong secret"}, "user alice cannot log in by PLAIN: .*Invalid"),
        ({"sasl_username": "mallory"}, "user mallory cannot log in by PLAIN: .*Invalid"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "it offers PLAIN; set sasl.mechanism"),
        ({"ssl_ca_location": "another"}, "is refused: .*does ssl.ca.location hold the authority"),
        ({"ssl_ca_location": "/nowhere.pem"}, "ssl.ca.location: /nowhere.pem: No such file"),
        ({"ssl_ca_location": __file__}, "ssl.ca.location: .* it cannot be read as PEM"),
    ],
)
async def test_a_refusal_is_final_and_says_why(
    tmp_path: Path, authority: Authority, open_one: Any, changed: dict[str, str], words: str
) -> None:
    """An `AuthenticationError` that names the remedy, and no secret."""
    if changed.get("ssl_ca_location") == "another":
        changed = {"ssl_ca_location": str(Authority(tmp_path / "another").path)}
    async with secure(tmp_path, authority, sasl_enabled_mechanisms="PLAIN") as running:
        security = options(authority, **{"sasl_mechanism": "PLAIN", **changed})
        with pytest.raises(AuthenticationError, match=words) as caught:
            await open_one(running, security)
    assert "secret" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("open_one", [open_blocking, open_pipelined])
async def test_the_certificate_of_the_broker_is_checked(tmp_path: Path, open_one: Any) -> None:
    """Another host's is refused unless names are not compared; an expired one always."""
    authority = Authority(tmp_path / "authority")
    elsewhere = authority.issue("elsewhere", "elsewhere.example")
    settings = {"ssl_keystore_location": str(elsewhere)}
    async with secure(tmp_path, authority, **settings) as running:
        with pytest.raises(AuthenticationError, match=r"identification\.algorithm=none"):
            await open_one(running, options(authority))
        unnamed = options(authority, ssl_endpoint_identification_algorithm="none")
        assert len(await open_one(running, unnamed)) == 1
    past = datetime.now(UTC) - timedelta(days=2)
    ca = trustme.CA()
    expired = ca.issue_cert("127.0.0.1", not_before=past, not_after=past + timedelta(days=1))
    path, trusted = tmp_path / "expired.pem", tmp_path / "trusted.pem"
    expired.private_key_and_cert_chain_pem.write_to_path(str(path))
    ca.cert_pem.write_to_path(str(trusted))
    settings = {"ssl_keystore_location": str(path)}
    async with secure(tmp_path / "second", authority, **settings) as running:
        with pytest.raises(AuthenticationError, match="expired; the broker needs a new one"):
            await open_one(running, options(authority, ssl_ca_location=str(trusted)))


@pytest.mark.parametrize("open_one", [open_blocking, open_pipelined])
async def test_a_client_shows_its_certificate(
    tmp_path: Path, authority: Authority, open_one: Any
) -> None:
    """From files, from one file, or as text; without one the broker's refusal is final."""
    combined = authority.issue("bob")
    pem = combined.read_text()
    start = pem.index("-----BEGIN CERTIFICATE")
    key, chain = pem[:start], pem[start:]
    (tmp_path / "chain.pem").write_text(chain)
    (tmp_path / "key.pem").write_text(key)
    async with secure(tmp_path, authority, ssl_client_auth="required") as running:
        for shown in (
            {"ssl_certificate_location": str(combined)},
            {
                "ssl_certificate_location": str(tmp_path / "chain.pem"),
                "ssl_key_location": str(tmp_path / "key.pem"),
            },
            {"ssl_certificate_pem": chain, "ssl_key_pem": key},
        ):
            assert len(await open_one(running, options(authority, **shown))) == 1
        with pytest.raises(ConnectionFailedError) as caught:
            await open_one(running, options(authority))
    # The alert may be overtaken by the end of the connection, which says nothing.
    if isinstance(caught.value, AuthenticationError):
        assert "set ssl.certificate.location" in str(caught.value)


@pytest.mark.parametrize("open_one", [open_blocking, open_pipelined])
async def test_plain_text_and_tls_do_not_meet(
    tmp_path: Path, authority: Authority, open_one: Any
) -> None:
    """The error says that one side speaks TLS and the other does not."""
    async with with_users(tmp_path, "alice") as running:
        with pytest.raises(ConnectionFailedError, match=r"does it speak TLS there|was lost"):
            await open_one(running, options(authority))


@pytest.mark.parametrize("leases", [False, True])
async def test_a_producer_with_a_wrong_password_fails_at_once(
    tmp_path: Path, authority: Authority, leases: bool
) -> None:
    """Not after its delivery timeout, which is minutes here; with the reason, and nothing stored."""
    async with secure(tmp_path, authority) as running:
        lease_servers = running.native_address if leases else ""
        security = options(authority, sasl_password="wrong secret")
        settings = quick(security, lease_servers=lease_servers, delivery_timeout_s=600)
        producer = AsyncProducer(running.kafka_address, settings)
        async with asyncio.timeout(PATIENCE_S):
            if leases:
                await producer.start()
                with pytest.raises(DeliveryError, match="alice cannot log in") as caught:
                    await (await producer.send("t", b"x", partition=0))
                assert not caught.value.may_be_stored
                assert caught.value.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                await producer.close()
            else:
                with pytest.raises(ProducerError, match="alice cannot log in"):
                    await producer.start()


async def test_a_password_changed_under_a_producer_fails_it_at_once(
    tmp_path: Path, authority: Authority
) -> None:
    """The next connection is refused: the batch fails with code 58, and is said not to be stored."""
    async with secure(tmp_path, authority) as running:
        settings = quick(options(authority), delivery_timeout_s=600)
        async with asyncio.timeout(PATIENCE_S):
            producer = AsyncProducer(running.kafka_address, settings)
            await producer.start()
            assert (await (await producer.send("t", b"x", partition=0))).offset == 0
            await add_user(running, "alice", "another password")
            cluster = producer._around.cluster  # type: ignore[union-attr]
            for task in cluster._connections.values():
                await task.result().close()
            with pytest.raises(DeliveryError, match="alice cannot log in") as caught:
                await (await producer.send("t", b"y", partition=0))
            assert caught.value.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert not caught.value.may_be_stored
            await producer.close()


async def test_leases_are_had_over_sasl_ssl(tmp_path: Path, authority: Authority) -> None:
    """The native port has the same log-in."""
    async with secure(tmp_path, authority) as running:
        settings = quick(options(authority), lease_servers=running.native_address)
        async with (
            asyncio.timeout(PATIENCE_S),
            AsyncProducer(running.kafka_address, settings) as producer,
        ):
            assert (await (await producer.send("t", b"x", partition=0))).sequence == 0


@pytest.mark.parametrize("after_failure", AfterFailure)
async def test_a_right_that_is_missing_fails_at_once(
    tmp_path: Path, authority: Authority, after_failure: AfterFailure
) -> None:
    """Without any right: 31 for the id. A right taken back: 29 for the batch, which is not stored."""
    async with (
        secure(tmp_path, authority, authorizer="acl") as running,
        asyncio.timeout(PATIENCE_S),
    ):
        editor = AclEditor(running.broker.access)
        settings = quick(options(authority), delivery_timeout_s=600, after_failure=after_failure)
        with pytest.raises(ProducerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await AsyncProducer(running.kafka_address, settings).start()
        await running.broker.services.topics.create(NewTopic(name="t"))
        await editor.allow(AclOperation.WRITE, "t", principal="User:alice")
        producer = AsyncProducer(running.kafka_address, settings)
        await producer.start()
        assert (await (await producer.send("t", b"x", partition=0))).offset == 0
        await editor.revoke(AclOperation.WRITE, "t", principal="User:alice")
        with pytest.raises(DeliveryError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            await (await producer.send("t", b"y", partition=0))
        assert caught.value.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not caught.value.may_be_stored
        await producer.close()


@pytest.fixture
def renews_at_will(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker lets a connection log in again once a second; here as often as it likes."""
    monkeypatch.setattr(session, "AGAIN_INTERVAL_S", 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("renews_at_will")
@pytest.mark.parametrize("mechanism", [Mechanism.PLAIN, Mechanism.SCRAM_SHA_512])
async def test_sessions_end_under_load_and_each_record_is_stored_once(
    tmp_path: Path, authority: Authority, mechanism: Mechanism
) -> None:
    """Logs in again on the open connection, with batches in flight and others waiting."""
    settings = {"connections_max_reauth_ms": "500", "listen": "127.0.0.1:0,127.0.0.1:0"}
    async with secure(tmp_path, authority, **settings) as running:
        metrics = running.broker.services.metrics
        before, count = metrics.logins_total, 0
        producing = quick(options(authority, mechanism), batch_records_max=7)
        async with (
            asyncio.timeout(PATIENCE_S),
            AsyncProducer(running.kafka_address, producing) as producer,
        ):
            while metrics.logins_total < before + 4:
                for _ in range(100):
                    await producer.send("t", b"%d" % count, partition=0)
                    count += 1
                await asyncio.sleep(0)
        assert running.external_address is not None
        address = running.external_address
        (values,) = await asyncio.to_thread(read_stored_values, address, "t", 1)
    assert values == [b"%d" % number for number in range(count)]


@pytest.mark.usefixtures("renews_at_will")
async def test_what_is_sent_while_a_log_in_is_renewed_waits_for_it(
    tmp_path: Path, authority: Authority
) -> None:
    """The broker would refuse it with 34 and end the connection."""
    async with secure(tmp_path, authority, connections_max_reauth_ms="600000") as running:
        host, port = host_and_port(running)
        connection = await PipelinedConnection.open(host, port, PATIENCE_S, options(authority))
        assert connection._renewal is not None
        logins = running.broker.services.metrics.logins_total
        before = [connection.send("metadata", ASK) for _ in range(5)]
        connection._renewal.cancel()
        connection._renew()
        await asyncio.sleep(0)
        meanwhile = [connection.send("metadata", ASK) for _ in range(5)]
        assert connection._is_logging_in
        answers = await asyncio.gather(*before, *meanwhile)
        assert all(len(answer.brokers) == 1 for answer in answers)
        assert running.broker.services.metrics.logins_total == logins + 1
        assert connection._renewal is not None
        await connection.close()


@pytest.mark.usefixtures("renews_at_will")
async def test_a_user_that_is_gone_ends_the_connection_when_it_renews(
    tmp_path: Path, authority: Authority
) -> None:
    """Requests that wait for the log-in fail by its reason, and none waits for ever."""
    async with secure(tmp_path, authority, connections_max_reauth_ms="600000") as running:
        host, port = host_and_port(running)
        connection = await PipelinedConnection.open(host, port, PATIENCE_S, options(authority))
        await add_user(running, "alice", "another password")
        assert connection._renewal is not None
        connection._renewal.cancel()
        connection._renew()
        await asyncio.sleep(0)
        with pytest.raises(AuthenticationError, match="alice cannot log in"):
            await connection.send("metadata", ASK)
        assert connection.is_closed


@pytest.mark.usefixtures("renews_at_will")
async def test_a_blocking_connection_logs_in_again_before_its_session_ends(
    tmp_path: Path, authority: Authority
) -> None:
    """With the next request after most of the session has passed, and with no other."""
    async with secure(tmp_path, authority, connections_max_reauth_ms="600000") as running:
        host, port = host_and_port(running)
        metrics = running.broker.services.metrics
        security = options(authority)

        def work() -> list[int]:
            logins = [metrics.logins_total]
            with BrokerConnection.open(host, port, PATIENCE_S, security) as connection:
                for is_due in (False, True, False):
                    if is_due:
                        connection._renewal_at = 0.0
                    connection.request("metadata", ASK)
                    logins.append(metrics.logins_total)
            return logins

        before, first, renewed, last = await asyncio.to_thread(work)
        assert (first, renewed, last) == (before + 1, before + 2, before + 2)
