"""`[listener.NAME]`: settings of one listener alone, and their mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.broker.config.listener_names import ADMIN, EXTERNAL, NATIVE, PLAINTEXT
from echoless.broker.config.listener_overrides import NAMES
from echoless.broker.config.loading import Config, ConfigError, load_config
from echoless.broker.config.names import settings
from echoless.broker.config.security import ClientAuth

TWO = """
listen = "127.0.0.1:9092,127.0.0.1:9094"
listener_security_protocol_map = "PLAINTEXT:SASL_PLAINTEXT,EXTERNAL:SASL_SSL,ADMIN:SSL"
sasl_enabled_mechanisms = "SCRAM-SHA-256,PLAIN"
ssl_keystore_location = "broker.pem"
ssl_truststore_location = "authority.pem"
connections_max_reauth_ms = 1000
"""


def load(tmp_path: Path, *lines: str) -> Config:
    path = tmp_path / "broker.toml"
    path.write_text("\n".join(lines))
    return load_config(["--config", str(path)], {})


def test_a_table_holds_for_its_listener_alone(tmp_path: Path) -> None:
    """Other names are as for the whole broker; values are written as elsewhere in the file."""
    config = load(
        tmp_path,
        TWO,
        "[listener.external]",
        'ssl_keystore_location = "external.pem"',
        'sasl_enabled_mechanisms = "SCRAM-SHA-256"',
        'connections_max_reauth_ms = "1h"',
        "[listener.ADMIN]",
        'ssl_client_auth = "required"',
    )
    external, admin = config.of_listener(EXTERNAL), config.of_listener(ADMIN)
    assert external.ssl_keystore_location == "external.pem"
    assert external.ssl_truststore_location == "authority.pem"
    assert external.sasl_enabled_mechanisms == ("SCRAM-SHA-256",)
    assert external.connections_max_reauth_ms == 3_600_000
    assert external.ssl_client_auth is ClientAuth.NONE
    assert (admin.ssl_client_auth, admin.ssl_keystore_location) == (
        ClientAuth.REQUIRED,
        "broker.pem",
    )
    assert config.of_listener(PLAINTEXT) is config.of_listener(NATIVE) is config
    assert config.connections_max_reauth_ms == 1000


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["listener = 1"], r"broker\.toml: listener: takes a table for each listener"),
        (["[listener]", "external = 1"], r"listener: takes a table for each listener"),
        (["[listener.internal]"], r"one of PLAINTEXT, EXTERNAL, NATIVE, ADMIN"),
        (["[listener.admin]", "[listener.ADMIN]"], r"once each"),
        (
            ["[listener.admin]", "log_segment_bytes = 1"],
            r"listener\.admin\.log_segment_bytes: is not set for a listener alone, which takes conn",
        ),
        (
            ["[listener.admin]", 'ssl_client_auth = "maybe"'],
            r"broker\.toml: listener\.admin\.ssl_client_auth: takes none or requested or required",
        ),
        (
            ["[listener.plaintext]", 'ssl_client_auth = "none"'],
            r"listener\.plaintext\.ssl_client_auth: PLAINTEXT is SASL_PLAINTEXT, without TLS",
        ),
        (
            ["[listener.admin]", "connections_max_reauth_ms = 5"],
            r"listener\.admin\.connections_max_reauth_ms: ADMIN is SSL, without log-ins",
        ),
        (
            ["[listener.native]", "connections_max_reauth_ms = 5"],
            r"NATIVE is PLAINTEXT, without log-ins",
        ),
        (
            ["[listener.external]", 'sasl_enabled_mechanisms = "SCRAM-SHA-512"'],
            r"takes some of those of the whole broker, SCRAM-SHA-256, PLAIN",
        ),
        (["[listener.admin]", "connections_max = 5"], r"is not for ADMIN, which has a limit"),
        (["[listener.native]", "connections_max = 0"], r"connections_max: takes an integer"),
        (
            ["[listener.external]", 'ssl_client_auth = "required"', 'ssl_truststore_location = ""'],
            r"ssl_truststore_location: takes the path",
        ),
    ],
)
def test_a_mistake_names_the_table(tmp_path: Path, lines: list[str], error: str) -> None:
    """In one line, with what it takes."""
    with pytest.raises(ConfigError, match=error) as caught:
        load(tmp_path, TWO, *lines)
    assert "\n" not in str(caught.value)


def test_a_password_of_a_listener_is_not_shown(tmp_path: Path) -> None:
    """Neither by the configuration nor by an error."""
    table = ["[listener.admin]", 'ssl_keystore_password = "hunter2"']
    assert "hunter2" not in repr(load(tmp_path, TWO, *table))


def test_plain_may_be_for_loopback_alone(tmp_path: Path) -> None:
    """A listener that would show passwords to a network may leave it to the others."""
    text = TWO.replace("127.0.0.1:9094", "10.0.0.1:9094").replace(
        "EXTERNAL:SASL_SSL", "EXTERNAL:SASL_PLAINTEXT"
    )
    with pytest.raises(ConfigError, match="PLAIN sends passwords as they are, and EXTERNAL"):
        load(tmp_path, text)
    load(tmp_path, text, "[listener.external]", 'sasl_enabled_mechanisms = "SCRAM-SHA-256"')


def test_certificates_of_the_admin_port_alone_are_enough(tmp_path: Path) -> None:
    """Beyond loopback it needs a token or a required certificate."""
    outside = TWO + 'admin_listen = "10.0.0.1:8080"\n'
    with pytest.raises(ConfigError, match="admin_token_file"):
        load(tmp_path, outside)
    load(tmp_path, outside, "[listener.admin]", 'ssl_client_auth = "required"')


def test_a_limit_of_a_listener_that_is_not_there(tmp_path: Path) -> None:
    """It would have no effect."""
    with pytest.raises(ConfigError, match="EXTERNAL is not listened on"):
        load(tmp_path, "[listener.external]", "connections_max = 5")


def test_every_name_is_one_of_the_broker() -> None:
    """A listener's names are those of docs/configuration.md."""
    assert settings().keys() >= NAMES
