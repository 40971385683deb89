"""Each real client, each mechanism that it knows, and what it says when it is not let in.

One process per client makes every attempt, at Echoless and at an Apache Kafka with the same users, ACLs and
certificates: the client's own error has to be the same at both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from echoless.testkit.free_ports import free_port
from tests.compatibility.programs import PROGRAMS, Program
from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import Authority
from tests.support.client_security import log_in, tls_settings, write_settings
from tests.support.echoless import LOOPBACK, Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.clients, pytest.mark.kafka, pytest.mark.slow]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS: Final = ("alice", "carol")
PASSWORD: Final = "correct-horse"
WAIT_S: Final = 60.0
STORED: Final = "stored"
ERROR: Final = "an error"
ALIKE: Final = ("certificate verify failed", "ClusterAuthorizationException")
"""Words of librdkafka and Java that stand in one of two sentences: it depends on which step meets the error."""
REFUSED_BY_BROKER: Final = ("no-certificate", "expired-certificate", "strange-certificate")
"""With TLS 1.3 the client learns of these after its own handshake: by an alert, which Java and OpenSSL word
differently, or by the end of a connection that it is writing to.
"""
SASL, MTLS, EXPIRED, ELSEWHERE = "sasl", "mtls", "expired", "elsewhere"
"""The places to connect to: log in, show a certificate, and two whose own certificates are no good."""
MAPPING: Final = "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"


@dataclass(slots=True)
class Certificates:
    """The authority that everyone trusts, a stranger, and what they signed."""

    ours: Authority
    stranger: Authority

    @property
    def of_brokers(self) -> dict[str, Path]:
        """By place."""
        good = self.ours.issue("broker")
        expired = self.ours.issue("expired-broker", is_expired=True)
        elsewhere = self.ours.issue("elsewhere", "elsewhere.example")
        for path in (good, expired, elsewhere):
            # Both brokers send the same chain then; OpenSSL would add the authority by itself.
            path.write_text(path.read_text() + self.ours.path.read_text())
        return {SASL: good, MTLS: good, EXPIRED: expired, ELSEWHERE: elsewhere}


@dataclass(slots=True)
class Attempt:
    """One attempt: the place that a client connects to, its settings, and the topic that it writes to."""

    place: str
    settings: dict[str, str]
    topic: str = "writable"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")
    return Certificates(Authority(directory / "ours"), Authority(directory / "stranger"))


@pytest.fixture(scope="module")
def attempts(certificates: Certificates) -> dict[str, Attempt]:
    """By name; those that are named after how they log in succeed."""
    trusting = tls_settings(certificates.ours)

    def by(mechanism: str, user: str = "alice", password: str = PASSWORD) -> dict[str, str]:
        return trusting | log_in(mechanism, user, password)

    def showing(certificate: Path) -> dict[str, str]:
        return tls_settings(certificates.ours, certificate)

    good = by("SCRAM-SHA-256")
    late = certificates.ours.issue("alice-late", is_expired=True)
    return {
        **{one: Attempt(SASL, by(one)) for one in MECHANISMS},
        "certificate": Attempt(MTLS, showing(certificates.ours.issue("alice"))),
        **{f"wrong-password-{one}": Attempt(SASL, by(one, password="x")) for one in MECHANISMS},
        "unknown-user": Attempt(SASL, by("SCRAM-SHA-256", "mallory")),
        "strange-authority": Attempt(
            SASL, good | {"ssl.ca.location": str(certificates.stranger.path)}
        ),
        "expired-broker": Attempt(EXPIRED, good),
        "other-host": Attempt(ELSEWHERE, good),
        "no-certificate": Attempt(MTLS, trusting),
        "expired-certificate": Attempt(MTLS, showing(late)),
        "strange-certificate": Attempt(MTLS, showing(certificates.stranger.issue("alice"))),
        "no-right": Attempt(SASL, good, "hidden"),
        "no-write": Attempt(SASL, good, "visible"),
        "no-idempotent-write": Attempt(SASL, by("SCRAM-SHA-256", "carol")),
    }


@pytest.fixture(scope="module")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[dict[str, str]]:
    """The addresses of an Apache Kafka, by place."""
    require("java", "kafka")
    places = {place: f"{LOOPBACK}:{free_port()}" for place in (SASL, MTLS, EXPIRED, ELSEWHERE)}
    protocols = {place: "SSL" if place == MTLS else "SASL_SSL" for place in places}
    names = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
    settings = {
        "listener.security.protocol.map": ",".join(
            [*names, *(f"{place.upper()}:{one}" for place, one in protocols.items())]
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "auto.create.topics.enable": "false",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ours.path),
        "ssl.principal.mapping.rules": MAPPING,
        "listener.name.mtls.ssl.client.auth": "required",
    }
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    passwords = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    for place, path in certificates.of_brokers.items():
        here = f"listener.name.{place}"
        settings |= {
            f"{here}.ssl.keystore.type": "PEM",
            f"{here}.ssl.keystore.location": str(path),
            f"{here}.plain.sasl.jaas.config": f"{plain} {passwords};",
            f"{here}.scram-sha-256.sasl.jaas.config": scram,
            f"{here}.scram-sha-512.sasl.jaas.config": scram,
        }
    listeners = [f"{place.upper()}://{address}" for place, address in places.items()]
    directory = tmp_path_factory.mktemp("kafka")
    broker = ApacheKafka(directory, settings, more_listeners=listeners)
    try:
        broker.start()
        administer(broker.kafka_address)
        yield places
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def echoless(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[dict[str, str]]:
    """The addresses of Echoless brokers, one per place: each has a certificate of its own."""
    brokers = []
    places = {}
    try:
        for place, path in certificates.of_brokers.items():
            protocol = "SSL" if place == MTLS else "SASL_SSL"
            settings = certificates.ours.settings(
                f"PLAINTEXT:{protocol},EXTERNAL:PLAINTEXT",
                ssl_keystore_location=str(path),
                ssl_client_auth="required" if place == MTLS else "none",
                ssl_principal_mapping_rules=MAPPING,
                sasl_enabled_mechanisms=",".join(MECHANISMS),
                authorizer="acl",
                super_users="User:ANONYMOUS",
                auto_create_topics_enable="false",
            )
            broker = Echoless(tmp_path_factory.mktemp("echoless"), settings)
            brokers.append(broker)
            broker.kafka_address = f"{LOOPBACK}:0,{LOOPBACK}:0"
            broker.start()
            places[place], plain = broker.kafka_address.split(",")
            administer(plain)
        yield places
    finally:
        for broker in brokers:
            broker.kill()


def administer(address: str) -> None:
    """Creates the topics, the users and their rights; `address` is open to everyone."""
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(name, 1, 1) for name in ("writable", "visible", "hidden")]
    rights = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for user, topic, operation in (
            ("alice", "writable", AclOperation.WRITE),
            ("alice-late", "writable", AclOperation.WRITE),
            ("alice", "visible", AclOperation.DESCRIBE),
            ("carol", "writable", AclOperation.DESCRIBE),
        )
    ]
    futures = [
        *admin.create_topics(topics).values(),
        *admin.create_acls(rights).values(),
    ]
    for future in futures:
        future.result(WAIT_S)
    for one in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        # Each mechanism by a request of its own: Kafka (KRaft) takes a user once per request.
        users = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(one, 4096), PASSWORD.encode())
            for user in USERS
        ]
        for added in admin.alter_user_scram_credentials(users).values():
            added.result(WAIT_S)


def outcomes(
    program: Program, attempts: dict[str, Attempt], places: dict[str, str], directory: Path
) -> dict[str, str]:
    """Says what became of each attempt, without addresses, times and other numbers."""
    directory.mkdir()
    lines = []
    for name, one in attempts.items():
        path = write_settings(directory / name, one.settings)
        lines.append(f"{name} {places[one.place]} {one.topic} {path}\n")
    cases = directory / "cases"
    cases.write_text("".join(lines))
    said: dict[str, str] = program.run("attempt", cases=cases)["outcomes"]
    return {name: _comparable(name, text) for name, text in said.items()}


def _comparable(name: str, text: str) -> str:
    """The outcome without what depends on the moment: numbers, and which step of a client sees an error."""
    if name in REFUSED_BY_BROKER and text != STORED:
        return ERROR
    for words in ALIKE:
        if words in text:
            return words
    return re.sub(r"\d+", "N", text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_client_hears_from_echoless_what_it_hears_from_kafka(
    program: Program,
    attempts: dict[str, Attempt],
    echoless: dict[str, str],
    kafka: dict[str, str],
    tmp_path: Path,
) -> None:
    """Every mechanism stores its record at both; everything else fails at both, with one error."""
    here = outcomes(program, attempts, echoless, tmp_path / "echoless")
    there = outcomes(program, attempts, kafka, tmp_path / "kafka")
    refused = [ERROR] * len(REFUSED_BY_BROKER)
    assert [here.pop(name) for name in REFUSED_BY_BROKER] == refused
    assert [there.pop(name) for name in REFUSED_BY_BROKER] == refused
    assert here == there
    let_in = {name for name, text in here.items() if text == STORED}
    assert let_in == {*MECHANISMS, "certificate"}
