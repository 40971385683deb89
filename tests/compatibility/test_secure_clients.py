"""Real clients over SASL_SSL: sessions that end, and Java's tools. `test_secure_outcomes.py` has the log-ins."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.compatibility.kafka_tools import run_tool
from tests.compatibility.programs import PROGRAMS, Program, read_summary
from tests.nemesis.replica_logs import read_batches, read_numbers
from tests.support.certificates import Authority
from tests.support.client_security import log_in, tls_settings, write_settings
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.clients]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "correct horse"
SESSION_MS = 3000
"""franz-go logs in again a second before the end, and as in Kafka no log-in is taken within a second of another."""
RECORDS = 9000
RECORDS_PER_S = 1000
_PATIENCE_S = 120.0


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


@pytest.mark.slow
@pytest.mark.parametrize("secure", [str(SESSION_MS)], indirect=True)
def test_sessions_end_under_load(secure: Echoless, authority: Authority, tmp_path: Path) -> None:
    """Every client's idempotent producer goes on after each end of its session; each record is stored once.

    Some log in again on the connection, others open a new one.
    """
    running: dict[Program, subprocess.Popen[str]] = {}
    for number, program in enumerate(PROGRAMS):
        login = log_in(MECHANISMS[number % len(MECHANISMS)], "alice", PASSWORD)
        security = write_settings(tmp_path / program.name, tls_settings(authority) | login)
        running[program] = program.start(
            "produce",
            bootstrap=secure.kafka_address,
            topic=program.name,
            partitions=1,
            codec="none",
            count=RECORDS,
            seed=number,
            rate=RECORDS_PER_S,
            security=security,
            base_timestamp=int(time.time() * 1000),
        )
    for program, process in running.items():
        output, said = process.communicate(timeout=4 * _PATIENCE_S)
        assert process.returncode == 0, f"{program.name}: {output} {said[-2000:]}"
        assert read_summary(output)["acked"] == RECORDS
    sessions = RECORDS / RECORDS_PER_S // (SESSION_MS / 1000)
    assert counted(secure, "logins_total") >= sessions * len(PROGRAMS)
    secure.kill()
    for program in PROGRAMS:
        numbers, problems = read_numbers(read_batches(secure.data_dir, program.name, 0))
        assert (list(numbers), problems) == (list(range(RECORDS)), []), program.name


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
    alice = tls_settings(authority) | log_in("SCRAM-SHA-256", "alice", PASSWORD)
    admin = AdminClient({"bootstrap.servers": secure.kafka_address, **alice})
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
