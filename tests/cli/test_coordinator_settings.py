"""Commands that change the coordinator itself talk to ZooKeeper as the environment says, like a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.broker import environment
from echoless.broker.cluster import catching_up
from echoless.broker.config.loading import Config
from echoless.broker.tree.node_tree import CoordinationError, NodeTree
from echoless.cli import acl_targets, user_tree
from tests.cli.command import Command
from tests.support.echoless import Echoless

ZOOKEEPER = "zookeeper://127.0.0.1:1/echoless"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations with which a coordinator would have been opened."""
    configs: list[Config] = []

    async def refuse(config: Config) -> NodeTree:
        configs.append(config)
        raise CoordinationError("no coordinator here")

    machine = environment.this_machine()
    unconnected = machine._replace(open_tree=refuse)
    for module in (acl_targets, catching_up, user_tree):
        monkeypatch.setattr(module, "this_machine", lambda: unconnected)
    return configs


@pytest.mark.parametrize("command", ["acls", "users"])
def test_zookeepers_digest_and_tls_come_from_the_environment(
    echoless: Command,
    opened: list[Config],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
) -> None:
    """Without the digest, the nodes that the command creates would be open to the world."""
    truststore = tmp_path / "ca.pem"
    truststore.write_text("")
    monkeypatch.setenv("ECHOLESS_ZOOKEEPER_DIGEST", "echoless:secret")
    monkeypatch.setenv("ECHOLESS_ZOOKEEPER_SSL_CLIENT_ENABLE", "true")
    monkeypatch.setenv("ECHOLESS_ZOOKEEPER_SSL_TRUSTSTORE_LOCATION", str(truststore))
    ran = echoless(command, "list", "--coordinator", ZOOKEEPER)
    assert (ran.code, "no coordinator here" in ran.err) == (1, True)
    (config,) = opened
    assert config.coordinator == ZOOKEEPER
    assert config.zookeeper_digest == "echoless:secret"
    assert config.zookeeper_ssl_client_enable
    assert config.zookeeper_ssl_truststore_location == str(truststore)


def test_a_catch_up_has_the_digest_too(
    echoless: Command, opened: list[Config], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nodes that are closed to the world would be closed to it."""
    broker = Echoless(tmp_path)
    broker.start()
    broker.kill()
    monkeypatch.setenv("ECHOLESS_ZOOKEEPER_DIGEST", "echoless:secret")
    ran = echoless("coordinator", "catch-up", broker.data_dir, "--coordinator", ZOOKEEPER)
    assert (ran.code, "no coordinator here" in ran.err) == (1, True)
    (config,) = opened
    assert (config.coordinator, config.data_dir) == (ZOOKEEPER, str(broker.data_dir))
    assert config.zookeeper_digest == "echoless:secret"


@pytest.mark.parametrize("command", ["acls", "users"])
def test_the_given_place_counts(
    echoless: Command,
    opened: list[Config],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
) -> None:
    """Not the coordinator and the directory of the environment."""
    monkeypatch.setenv("ECHOLESS_COORDINATOR", ZOOKEEPER)
    monkeypatch.setenv("ECHOLESS_DATA_DIR", str(tmp_path / "other"))
    assert echoless(command, "list", "--data-dir", tmp_path / "data").code == 1
    (config,) = opened
    assert (config.coordinator, config.data_dir) == ("embedded", str(tmp_path / "data"))


@pytest.mark.parametrize("command", ["acls", "users"])
def test_a_mistake_in_the_environment_is_named(
    echoless: Command, opened: list[Config], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Before anything is opened."""
    monkeypatch.setenv("ECHOLESS_ZOOKEEPER_SSL_CLIENT_ENABLE", "perhaps")
    ran = echoless(command, "list", "--coordinator", ZOOKEEPER)
    assert (ran.code, "zookeeper_ssl_client_enable" in ran.err.lower()) == (1, True)
    assert opened == []
