"""Commands that use an admin port which asks for a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.testkit.broker_process import BrokerProcess
from tests.cli.command import Command
from tests.support.certificates import Authority

pytestmark = pytest.mark.slow

OPERATOR = "q3bVvnsS0lD2Zx8KfWm1uA"
COMMANDS = (
    ("faults", "list"),
    ("faults", "add", "twice"),
    ("faults", "clear"),
    ("decisions",),
    ("trace", "--follow-for", "0"),
)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's file, which commands on its machine may read too."""
    path = tmp_path_factory.mktemp("admin") / "tokens"
    path.write_text(f"# people\n{OPERATOR} change User:olga\nabcdefghijklmnopqrst read\n")
    return path


@pytest.fixture(scope="module")
def admin(token_file: Path) -> Iterator[str]:
    """The admin port."""
    with BrokerProcess({"admin_token_file": str(token_file)}) as broker:
        yield broker.admin


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_sends_its_token(
    echoless: Command,
    admin: str,
    token_file: Path,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the first line of a file, or from the environment; without it, it says what is missing."""
    refused = echoless(*command, "--admin", admin)
    assert refused.code == 1
    assert "admin_token_file" in refused.err

    def is_admitted(*more: object) -> bool:
        ran = echoless(*command, "--admin", admin, *more)
        return ran.code == 0 or "nothing was decided" in ran.err

    assert is_admitted("--admin-token-file", token_file)
    monkeypatch.setenv("ECHOLESS_ADMIN_TOKEN", OPERATOR)
    assert is_admitted()
    monkeypatch.setenv("ECHOLESS_ADMIN_TOKEN", "wrong")
    assert not is_admitted()
    monkeypatch.setenv("ECHOLESS_ADMIN_TOKEN_FILE", str(token_file))
    assert is_admitted()


def test_a_file_without_a_token_is_named(echoless: Command, tmp_path: Path) -> None:
    """By the option, before anything is asked."""
    ran = echoless("decisions", "--admin-token-file", tmp_path / "none")
    assert ran.code == 1
    assert "--admin-token-file: cannot read" in ran.err


def test_a_port_with_tls_takes_a_certificate(
    echoless: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `https://` and the properties of Kafka's tools; a log-in among them is not for this port."""
    authority = Authority(tmp_path / "authority")
    certificate = authority.issue("olga")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        f"ssl.ca.location={authority.path}\nssl.certificate.location={certificate}\n"
    )
    settings = authority.settings("ADMIN:SSL", ssl_client_auth="required")
    with BrokerProcess(settings) as broker:
        place = ("--admin", f"https://{broker.admin}")
        monkeypatch.setenv("ECHOLESS_COMMAND_CONFIG", str(properties))
        for command in COMMANDS:
            ran = echoless(*command, *place)
            assert ran.code == 0 or "nothing was decided" in ran.err
        assert echoless("faults", "list", "--admin", broker.admin).code == 1
        monkeypatch.delenv("ECHOLESS_COMMAND_CONFIG")
        refused = echoless("faults", "list", *place)
        assert refused.code == 1
        assert f"https://{broker.admin}/faults" in refused.err
    mixed = ("--admin", "https://127.0.0.1:1", "--admin", "127.0.0.1:2")
    assert "for all of them, or for none" in echoless("trace", *mixed).err
