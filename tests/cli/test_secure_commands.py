"""Commands that ask a broker, over SASL_SSL: `--command-config`, and what is said if it is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from echoless.cli.commands import COMMANDS, app_with
from echoless.client.command_config import PASSWORD_VARIABLE
from tests.cli.command import Command
from tests.support.certificates import Authority
from tests.support.echoless import Echoless

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(tmp_path: Path, authority: Authority, echoless: Command) -> Iterator[Echoless]:
    """Has SASL_SSL, an authorizer, the super user alice, and bob, who may do nothing."""
    settings = {"authorizer": "acl", "super_users": "User:alice"}
    broker = Echoless(tmp_path, authority.settings("PLAINTEXT:SASL_SSL", **settings))
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    for user in ("alice", "bob"):
        place = ("--password-file", secret, "--data-dir", broker.data_dir)
        assert echoless("users", "add", user, *place).code == 0
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def config(tmp_path: Path, authority: Authority) -> Path:
    return written(tmp_path / "alice.properties", authority)


def written(path: Path, authority: Authority, user: str = "alice", **changed: str) -> Path:
    """A file as for Kafka's own tools. `changed`: names with underscores; empty: left out."""
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.path),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "client.id": "is left alone",
    } | {name.replace("_", "."): value for name, value in changed.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items() if value))
    return path


@pytest.mark.slow
def test_every_command_that_asks_a_broker_logs_in(
    broker: Echoless, config: Path, echoless: Command, tmp_path: Path
) -> None:
    """Topics, users, ACLs and producers, with one file; ACLs hold for users that are not super users."""

    def run(*arguments: object) -> Any:
        place = ("--bootstrap-server", broker.kafka_address, "--command-config", config)
        ran = echoless(*arguments, *place)
        assert ran.code == 0, ran.err
        return ran

    run("topics", "create", "orders", "--partitions", "2")
    assert [one["name"] for one in run("topics", "list", "--json").json] == ["orders"]
    run("topics", "alter", "orders", "--config", "retention.ms=60000")
    (described,) = run("topics", "describe", "orders", "--json").json
    assert described["configs"] == {"retention.ms": "60000"}
    assert run("topics", "reassign", "--json").json == []
    run("topics", "elect-leaders", "orders")
    assert run("producers", "orders", "--json").json == []
    run("users", "add", "carol", "--password-file", tmp_path / "secret")
    users = run("users", "list", "--json").json
    assert [one["user"] for one in users] == ["alice", "bob", "carol"]
    run("users", "remove", "carol")
    run("acls", "add", "--principal", "User:bob", "--operation", "describe", "--topic", "orders")
    assert len(run("acls", "list", "--json").json) == 1
    run("acls", "remove", "--principal", "User:bob")
    run("topics", "delete", "orders")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl_password": "wrong secret"}, "user alice cannot log in by SCRAM-SHA-512"),
        ({"sasl_password": ""}, f"has no sasl.password: add it, or set {PASSWORD_VARIABLE}"),
        ({"sasl_mechanism": "PLAIN"}, "it offers SCRAM-SHA-256, SCRAM-SHA-512; set sasl.mechanism"),
        ({"ssl_truststore_location": ""}, "does ssl.ca.location hold the authority"),
        ({"ssl_truststore_type": "JKS"}, "--command-config: ssl.truststore.type other than PEM"),
        ({"security_protocol": "SSL"}, "--command-config: sasl.mechanism has no effect"),
        ({"user": "bob"}, "acls: CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def test_what_is_wrong_is_one_line(  # noqa: PLR0917  fixtures
    broker: Echoless,
    authority: Authority,
    echoless: Command,
    tmp_path: Path,
    changed: dict[str, str],
    words: str,
) -> None:
    """At once, naming the remedy, without the password."""
    path = written(tmp_path / "wrong.properties", authority, **changed)
    place = ("--bootstrap-server", broker.kafka_address, "--command-config", path)
    ran = echoless("acls", "list", *place)
    assert ran.code == 1
    assert words in ran.err
    assert ran.err.count("\n") == 1
    assert "secret" not in ran.err
    assert PASSWORD not in ran.err


@pytest.mark.slow
def test_the_password_may_be_in_the_environment(
    broker: Echoless,
    authority: Authority,
    echoless: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the file may be one that everyone reads; the file may be named there, too."""
    path = written(tmp_path / "open.properties", authority, sasl_password="")
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    monkeypatch.setenv("ECHOLESS_COMMAND_CONFIG", str(path))
    assert echoless("topics", "list", "--bootstrap-server", broker.kafka_address).code == 0


@pytest.mark.slow
def test_a_broker_that_wants_tls_is_not_a_riddle(broker: Echoless, echoless: Command) -> None:
    """Without options the message names the one to pass."""
    ran = echoless("topics", "list", "--bootstrap-server", broker.kafka_address)
    assert ran.code == 1
    assert "--command-config" in ran.err


def test_each_command_that_takes_a_port_takes_its_options() -> None:
    """None has a list of its own; no command takes a password as an argument."""

    def commands(one: Any, path: str = "echoless") -> Iterator[tuple[str, set[str]]]:
        if hasattr(one, "commands"):
            for name, each in one.commands.items():
                yield from commands(each, f"{path} {name}")
        else:
            yield path, {option for parameter in one.params for option in parameter.opts}

    found = dict(commands(typer.main.get_command(app_with(COMMANDS))))
    ports = {"--bootstrap-server", "--admin"}
    asking = {path for path, options in found.items() if ports & options}
    assert len(asking) >= 14
    for path, options in found.items():
        assert ("--command-config" in options) == (path in asking), path
        assert not options & {"--password", "--sasl-password"}, path
