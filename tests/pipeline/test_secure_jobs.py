"""Spark jobs over SASL_SSL with an ACL for a single topic, and no secret in anything that they write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from cryptography.hazmat.primitives import serialization

from echoless.client.command_config import PASSWORD_VARIABLE
from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.options import read_options
from echoless.pipeline.security_arguments import file_options
from tests.cli.command import Command
from tests.pipeline.pipeline_process import PipelineProcess
from tests.support.certificates import Authority
from tests.support.echoless import REPOSITORY, Echoless
from tests.support.stored_values import read_stored_values
from tests.support.tokens import Issuer
from tests.toolchain import require

PASSWORD = "hunter2-of-alice"
_TIMEOUT_S = 400
_ROWS = 20


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "issuer")


@pytest.fixture
def broker(
    tmp_path: Path, authority: Authority, issuer: Issuer, capsys: pytest.CaptureFixture[str]
) -> Iterator[Echoless]:
    """Alice may write, read and describe `orders`, and nothing else; a second listener is open to the super user."""
    echoless = Command(capsys)
    settings = authority.settings(
        "PLAINTEXT:SASL_SSL,EXTERNAL:PLAINTEXT",
        authorizer="acl",
        super_users="User:ANONYMOUS",
        **issuer.settings(sasl_enabled_mechanisms="OAUTHBEARER,PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"),
    )
    broker = Echoless(tmp_path / "broker", settings)
    broker.kafka_address = "127.0.0.1:0,127.0.0.1:0"
    (tmp_path / "secret").write_text(PASSWORD)
    place = ("--data-dir", broker.data_dir)
    assert (
        echoless("users", "add", "alice", "--password-file", tmp_path / "secret", *place).code == 0
    )
    (tmp_path / "secret").unlink()
    rights = ("--operation", "write", "--operation", "read", "--operation", "describe")
    given = ("--principal", "User:alice", "--topic", "orders", *rights)
    assert echoless("acls", "add", *given, *place).code == 0
    broker.start()
    broker.kafka_address, broker.open_address = broker.kafka_address.split(",")  # type: ignore[attr-defined]
    for topic in ("orders", "forbidden"):
        server = ("--bootstrap-server", broker.open_address)  # type: ignore[attr-defined]
        assert echoless("topics", "create", topic, *server).code == 0
    yield broker
    broker.kill()


def files_with(directory: Path, *texts: str) -> list[tuple[Path, str]]:
    """The files below that have one of the texts."""
    found = []
    for path in directory.rglob("*"):
        if path.is_file() and path.name != "options.json":
            data = path.read_bytes()
            found += [(path, text) for text in texts if text.encode() in data]
    return found


def _pkcs8(key: str) -> str:
    """The key in the only form that Java reads."""
    private = serialization.load_pem_private_key(key.encode(), password=None)
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    return private.private_bytes(serialization.Encoding.PEM, form, plain).decode()


@pytest.mark.spark
def test_no_secret_is_in_anything_that_a_run_writes(
    tmp_path: Path, authority: Authority, broker: Echoless
) -> None:
    """Streams, jobs, readers, plans, refusals: not in logs, events, checkpoints, ledgers or on the screen."""
    require("java")
    directory = tmp_path / "run"
    directory.mkdir()
    pem = authority.issue("alice").read_text()
    start = pem.index("-----BEGIN CERTIFICATE")
    key = _pkcs8(pem[:start])
    options = {
        "kafka.bootstrap.servers": broker.kafka_address,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.ca.location": str(authority.path),
        "kafka.ssl.keystore.certificate.chain": pem[start:],
        "kafka.ssl.keystore.key": key,
    }
    (directory / "options.json").write_text(json.dumps(options))
    with (directory / "log").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.secure_job", str(directory)],
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(directory)},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            check=False,
        )
    printed = (directory / "log").read_text()
    assert done.returncode == 0, printed[-4000:]
    outcomes = [line for line in printed.splitlines() if line.startswith(("wrote: ", "refused: "))]
    reading = ["wrote: records"] if "wrote: records" in outcomes else []
    assert outcomes == [
        *("wrote: data source", "wrote: foreachBatch", "wrote: job", "wrote: headers"),
        *(*reading, "wrote: topic", "wrote: topic as a stream"),
        *("refused: forbidden topic", "refused: topic, wrong password"),
        *("refused: forbidden", "refused: wrong password"),
    ]
    assert (
        "topic forbidden: it may not be described: the reader needs the right to read it" in printed
    )
    assert "TOPIC_AUTHORIZATION_FAILED" in printed
    assert "user alice cannot log in by SCRAM-SHA-256" in printed
    assert list((directory / "events").rglob("*events*")), "the events of a run were looked at, too"
    assert files_with(directory, PASSWORD, key.splitlines()[1]) == []
    (values,) = read_stored_values(broker.open_address, "orders", 1)  # type: ignore[attr-defined]
    expected = [f"{way}-{row}" for way in ("data-source", "foreach", "job") for row in range(_ROWS)]
    assert sorted(value.decode() for value in values) == sorted(expected)


@pytest.mark.spark
def test_commands_take_a_file(
    tmp_path: Path, authority: Authority, broker: Echoless, issuer: Issuer
) -> None:
    """Ingest, mirror and audit of a cluster with SASL_SSL, each by another log-in: alice ingests, mirrors and audits."""
    require("java", "spark-kafka")
    shared = f"security.protocol=SASL_SSL\nssl.truststore.location={authority.path}\n"
    token = tmp_path / "token.jwt"
    token.write_text(issuer.token(iat=int(time.time()) - 1))
    modules = "org.apache.kafka.common.security"
    logins = {
        "plain": "kafka.sasl.mechanism=PLAIN\nkafka.sasl.jaas.config="
        f'{modules}.plain.PlainLoginModule required username="alice" password="{PASSWORD}";\n',
        "oauthbearer": "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={modules}.oauthbearer.OAuthBearerLoginModule required;\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n",
        "scram": f"sasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password={PASSWORD}\n",
    }
    for name, login in logins.items():
        (tmp_path / name).write_text(shared + login)
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "one.json").write_text("".join(f'{{"value": "{row}"}}\n' for row in range(_ROWS)))
    run = tmp_path / "run"
    ingest = (
        *("ingest", str(rows), "--format", "json", "--value-column", "value"),
        *("--to", broker.kafka_address, "--to-config", str(tmp_path / "plain")),
        *("--topic", "orders", "--checkpoint", str(run / "ingest")),
    )
    mirror = (
        *("mirror", "--from", broker.kafka_address, "--once"),
        *("--from-config", str(tmp_path / "oauthbearer")),
        *("--to", broker.open_address, "--prefix", "copy-", "--topics", "orders"),  # type: ignore[attr-defined]
        *("--create-topics", "--checkpoint", str(run / "mirror")),
    )
    audit = (
        *("audit", "--bootstrap-server", broker.kafka_address, "--topic", "orders"),
        *("--command-config", str(tmp_path / "scram")),
    )
    for number, arguments in enumerate((ingest, mirror, audit)):
        with PipelineProcess(*arguments, directory=run / str(number)) as process:
            assert process.wait() == 0, process.output
    assert files_with(run, PASSWORD, token.read_text()) == []
    for topic in ("orders", "copy-orders"):
        (values,) = read_stored_values(broker.open_address, topic, 1)  # type: ignore[attr-defined]
        assert values == [b"%d" % row for row in range(_ROWS)]


@pytest.mark.parametrize("option", ["--target-option", "--source-option"])
@pytest.mark.parametrize(
    "name",
    [
        *("kafka.sasl.password", "kafka.sasl.oauthbearer.token"),
        "kafka.sasl.oauthbearer.client.secret",
        "kafka.sasl.oauthbearer.client.credentials.client.secret",
        *("ledger.secret_access_key", "ledger.sas_key", "ledger.webhdfs_token"),
    ],
)
def test_a_secret_is_no_argument(name: str, option: str, tmp_path: Path) -> None:
    """Everyone on the machine could read it; the message says where to put it, without repeating it."""
    from typer.testing import CliRunner

    from echoless.pipeline.commands import app

    arguments = ["mirror", "--from", "h:1", "--to", "h:2", "--topics", "t"]
    arguments += ["--checkpoint", str(tmp_path), option, f"{name}={PASSWORD}"]
    ran = CliRunner().invoke(app, arguments, env={"COLUMNS": "300", PASSWORD_VARIABLE: ""})
    assert ran.exit_code == 2
    assert "put it in a file" in ran.output
    assert PASSWORD not in ran.output


def test_the_sink_takes_security_options_by_both_names() -> None:
    """Those that are wrong are refused by name, without their values."""
    base = {"kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "SASL_SSL"}
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "alice"}
    found = read_options({**base, **login, "kafka.sasl.password": PASSWORD}, name="n", ledger="/l")
    assert found.settings.security.protocol == "SASL_SSL"
    assert PASSWORD not in repr(found)
    with pytest.raises(OptionError, match=r"options kafka\.\*: sasl.password is needed"):
        read_options({**base, **login}, name="n", ledger="/l")
    jks = {"kafka.ssl.truststore.type": "JKS", "kafka.sasl.password": PASSWORD}
    with pytest.raises(OptionError, match=r"ssl\.truststore\.type other than PEM") as caught:
        read_options({**base, **login, **jks}, name="n", ledger="/l")
    assert PASSWORD not in str(caught.value)


def test_a_file_has_kafkas_names_or_sparks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And credentials of the ledger's store; what is left is for other tools."""
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    path = tmp_path / "options"
    lines = {
        "kafka.security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "ledger.secret_access_key": "s",
        "acks": "all",
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    expected = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": PASSWORD,
    }
    assert file_options(str(path), "--to-config") == expected
    with_store = {**expected, "ledger.secret_access_key": "s"}
    assert file_options(str(path), "--to-config", has_ledger=True) == with_store
    with path.open("a") as file:
        file.write("kafka.sasl.mechanism=SCRAM-SHA-256\n")
    with pytest.raises(typer.BadParameter, match=r"sasl.mechanism and kafka.sasl.mechanism differ"):
        file_options(str(path), "--to-config")
