"""Real clients over SASL_SSL: sessions that end, and Java's tools. `test_secure_outcomes.py` has the log-ins."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.compatibility.kafka_tools import run_tool
from tests.support.certificates import Authority
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.clients]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "correct horse"
_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secure(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority, echoless_command: Command
) -> Iterator[Echoless]:
    """A broker with the user alice; its parameter is how long sessions last."""
    broker = Echoless(
        tmp_path,
        authority.settings(
            "PLAINTEXT:SASL_SSL",
            sasl_enabled_mechanisms=",".join(MECHANISMS),
            connections_max_reauth_ms=getattr(request, "param", "0"),
        ),
    )
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    place = ("--password-file", secret, "--data-dir", broker.data_dir)
    assert echoless_command("users", "add", "alice", *place).code == 0
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def echoless_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def counted(broker: Echoless, counter: str) -> int:
    """One of the broker's counters."""
    with urllib.request.urlopen(f"http://{broker.admin_address}/metrics") as answer:
        found = re.search(rf"^echoless_{counter} ([\d.]+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def librdkafka(
    broker: Echoless, authority: Authority, mechanism: str, **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.kafka_address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.path),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        **more,
    }


@pytest.mark.slow
@pytest.mark.parametrize("secure", ["3000"], indirect=True)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_logs_in_again(
    secure: Echoless, authority: Authority, mechanism: str
) -> None:
    """Its idempotent producer continues after its session has ended; each record is stored once."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer(librdkafka(secure, authority, mechanism, **{"enable.idempotence": True}))
    sent, failed = 0, []
    logins = 0
    deadline = time.monotonic() + _PATIENCE_S
    while logins < 6 and time.monotonic() < deadline:
        producer.produce(
            "t", str(sent), partition=0, on_delivery=lambda error, _: failed.append(error)
        )
        sent += 1
        assert producer.flush(_PATIENCE_S) == 0
        logins = counted(secure, "logins_total")
        time.sleep(0.05)
    assert logins >= 6
    assert set(failed) == {None}
    consumer = Consumer(librdkafka(secure, authority, mechanism, **{"group.id": "none"}))
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[str] = []
    while len(values) < sent:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None
        values.append(message.value().decode())
    assert values == [str(number) for number in range(sent)]
    consumer.close()


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_java_administers_users_and_produces(
    secure: Echoless, authority: Authority, tmp_path: Path, mechanism: str
) -> None:
    """`kafka-configs.sh` adds a user, by whom the console producer logs in, and deletes it."""
    from confluent_kafka.admin import AdminClient

    require("java", "kafka")
    as_alice, as_bob = tmp_path / "alice.properties", tmp_path / "bob.properties"
    as_alice.write_text(_java_settings(authority, mechanism, "alice", PASSWORD))
    as_bob.write_text(_java_settings(authority, "SCRAM-SHA-512", "bob", "hunter2"))
    alter = ("--command-config", str(as_alice), "--alter")
    bob = ("--entity-type", "users", "--entity-name", "bob")
    where = ("--bootstrap-server", secure.kafka_address)
    tool, added = "kafka.admin.ConfigCommand", "SCRAM-SHA-512=[iterations=8192,password=hunter2]"
    run_tool(tool, *where, *alter, "--add-config", added, *bob)
    run_tool(
        "kafka.tools.ConsoleProducer",
        *(*where, "--topic", "t", "--producer.config", str(as_bob)),
        *("--request-required-acks", "all"),
        lines=["one", "two"],
    )
    admin = AdminClient(librdkafka(secure, authority, "SCRAM-SHA-256"))
    assert _described(admin) == {"alice": [8192, 8192], "bob": [8192]}
    run_tool(tool, *where, *alter, "--delete-config", "SCRAM-SHA-512", *bob)
    assert _described(admin) == {"alice": [8192, 8192]}
    assert counted(secure, "records_appended_total") == 2


def _java_settings(authority: Authority, mechanism: str, user: str, password: str) -> str:
    login = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return (
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{login} required "
        f'username="{user}" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.path}\n"
    )


def _described(admin: Any) -> dict[str, list[int]]:
    """The iterations of each user's credentials, as librdkafka is told."""
    users = admin.describe_user_scram_credentials().result(timeout=_PATIENCE_S)
    return {
        name: [one.iterations for one in found.scram_credential_infos]
        for name, found in users.items()
    }
