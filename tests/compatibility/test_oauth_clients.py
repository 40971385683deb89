"""Real clients that log in by OAUTHBEARER over SASL_SSL, with tokens of their own providers."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echoless.client.connection import BrokerConnection
from echoless.client.security import Security, Tls, TokenEndpoint, TokenLogin
from echoless.client.security_options import java_options
from tests.compatibility.kafka_tools import run_tool
from tests.compatibility.programs import FRANZ_GO, JAVA, KAFKAJS, Program
from tests.compatibility.test_secure_clients import authority, counted
from tests.support.certificates import Authority
from tests.support.client_security import tls_settings, write_settings
from tests.support.echoless import Echoless
from tests.support.token_server import TokenServer
from tests.support.tokens import Issuer
from tests.toolchain import require

__all__ = ["authority"]

pytestmark = [pytest.mark.clients]

_PATIENCE_S = 120.0


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "issuer")


@pytest.fixture
def broker(tmp_path: Path, authority: Authority, issuer: Issuer) -> Iterator[Echoless]:
    """Takes tokens of the issuer, and nothing else."""
    settings = issuer.settings(sasl_enabled_mechanisms="OAUTHBEARER")
    broker = Echoless(tmp_path, authority.settings("PLAINTEXT:SASL_SSL", **settings))
    broker.start()
    yield broker
    broker.kill()


def librdkafka(
    broker: Echoless, authority: Authority, oauth_cb: Any, **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.kafka_address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.path),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": oauth_cb,
        **more,
    }


@pytest.mark.slow
def test_librdkafka_produces_over_the_end_of_its_tokens(
    broker: Echoless, authority: Authority, issuer: Issuer
) -> None:
    """Its idempotent producer shows new ones on the same connection; each record is stored once."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    def new_token(_: str) -> tuple[str, float]:
        return issuer.token(lasts_s=6), time.time() + 6

    producer = Producer(librdkafka(broker, authority, new_token, **{"enable.idempotence": True}))
    sent, failed = 0, []
    deadline = time.monotonic() + _PATIENCE_S
    while counted(broker, "logins_total") < 6 and time.monotonic() < deadline:
        producer.produce(
            "t", str(sent), partition=0, on_delivery=lambda error, _: failed.append(error)
        )
        sent += 1
        assert producer.flush(_PATIENCE_S) == 0
        time.sleep(0.05)
    assert counted(broker, "logins_total") >= 6
    assert set(failed) == {None}
    consumer = Consumer(librdkafka(broker, authority, new_token, **{"group.id": "none"}))
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[str] = []
    while len(values) < sent:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None
        values.append(message.value().decode())
    assert values == [str(number) for number in range(sent)]
    consumer.close()


def test_librdkafka_is_told_of_a_token_that_is_refused(
    broker: Echoless, authority: Authority, issuer: Issuer
) -> None:
    """By the error that it has for it."""
    from confluent_kafka import KafkaError, Producer

    errors: list[Any] = []
    token = issuer.token(aud="others")
    settings = librdkafka(broker, authority, lambda _: (token, time.time() + 600))
    producer = Producer({**settings, "error_cb": errors.append})
    deadline = time.monotonic() + _PATIENCE_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()


async def test_aiokafka_produces(broker: Echoless, authority: Authority, issuer: Issuer) -> None:
    """With idempotence. (What it does with a token that is refused is up to it: it does not read the answer.)"""
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return issuer.token()

    producer = AIOKafkaProducer(
        bootstrap_servers=broker.kafka_address,
        security_protocol="SASL_SSL",
        ssl_context=authority.client_context(),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        enable_idempotence=True,
    )
    await producer.start()
    try:
        for number in range(3):
            send = producer.send_and_wait("t", b"x", partition=0)
            stored = await asyncio.wait_for(send, _PATIENCE_S)
            assert stored.offset == number
    finally:
        await producer.stop()


def test_kafka_python_produces(broker: Echoless, authority: Authority, issuer: Issuer) -> None:
    """With idempotence."""
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return issuer.token()

    producer = KafkaProducer(
        bootstrap_servers=broker.kafka_address,
        security_protocol="SASL_SSL",
        ssl_cafile=str(authority.path),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        enable_idempotence=True,
    )
    for number in range(3):
        stored = producer.send("t", b"x", partition=0).get(timeout=_PATIENCE_S)
        assert stored.offset == number
    producer.close()


@pytest.mark.slow
@pytest.mark.kafka
def test_java_produces_with_a_token_from_a_file(
    broker: Echoless, authority: Authority, issuer: Issuer, tmp_path: Path
) -> None:
    """By Kafka 3.9's own callback handler, with the idempotence that it has by default."""
    require("java", "kafka")
    token, properties = tmp_path / "token.jwt", tmp_path / "client.properties"
    token.write_text(issuer.token(iat=int(time.time()) - 1))
    oauth = "org.apache.kafka.common.security.oauthbearer"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={oauth}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={oauth}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.path}\n"
    )
    run_tool(
        "kafka.tools.ConsoleProducer",
        *("--bootstrap-server", broker.kafka_address, "--topic", "t"),
        *("--producer.config", str(properties), "--request-required-acks", "all"),
        lines=["one", "two"],
    )
    assert counted(broker, "records_appended_total") == 2


@pytest.mark.slow
@pytest.mark.kafka
def test_java_takes_the_options_that_our_client_writes_for_it(
    broker: Echoless, authority: Authority, issuer: Issuer, tmp_path: Path
) -> None:
    """By Kafka 3.9's own handler and an endpoint over HTTPS: Spark's source reads so."""
    require("java", "kafka")
    properties = tmp_path / "client.properties"
    with TokenServer(authority, lambda: issuer.token(iat=int(time.time()) - 1)) as server:
        endpoint = TokenEndpoint(
            url=server.url.replace("127.0.0.1", "localhost"),
            client_id="app",
            client_secret='"hunter2"\\',
            scope="produce",
            ca_location=str(authority.path),
        )
        tls = Tls(ca_location=str(authority.path))
        options = java_options(Security(tls=tls, login=TokenLogin(endpoint=endpoint)))
        lines = (f"{name}={value}\n".replace("\\", "\\\\") for name, value in options.items())
        properties.write_text("".join(lines))
        run_tool(
            "kafka.tools.ConsoleProducer",
            *("--bootstrap-server", broker.kafka_address, "--topic", "t"),
            *("--producer.config", str(properties), "--request-required-acks", "all"),
            lines=["one", "two"],
        )
    assert counted(broker, "records_appended_total") == 2
    basic = base64.b64encode(b'app:"hunter2"\\').decode()
    assert {headers["Authorization"] for _, headers, _ in server.asked} == {f"Basic {basic}"}


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("program", [*JAVA, FRANZ_GO, KAFKAJS], ids=lambda program: program.name)
def test_a_token_opens_and_another_issuers_does_not(
    program: Program, broker: Echoless, authority: Authority, issuer: Issuer, tmp_path: Path
) -> None:
    """Each stores its record with a good one, and says that it is refused with another."""
    tls = Tls(ca_location=str(authority.path))
    ours = Security(tls=tls, login=TokenLogin(token=issuer.token()))
    host, _, port = broker.kafka_address.rpartition(":")
    with BrokerConnection.open(host, int(port), _PATIENCE_S, ours) as connection:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        topic |= {"assignments": [], "configs": []}
        connection.request("create_topics", {"topics": [topic], "timeout": 10_000})
    lines = []
    for name, token in (
        ("good", issuer.token(iat=int(time.time()) - 1)),
        ("bad", issuer.token(iat=int(time.time()) - 1, iss="https://elsewhere.example")),
    ):
        settings = tls_settings(authority) | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token": token,
        }
        path = write_settings(tmp_path / name, settings)
        lines.append(f"{name} {broker.kafka_address} t {path}\n")
    cases = tmp_path / "cases"
    cases.write_text("".join(lines))
    outcomes = program.run("attempt", cases=cases)["outcomes"]
    assert outcomes["good"] == "stored"
    assert outcomes["bad"] != "stored"
    assert counted(broker, "records_appended_total") == 1
