"""Settings of topics that change in the source while they are mirrored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from echoless.client.security import NO_SECURITY
from echoless.pipeline.mirror.settings_sync import SettingsSync
from tests.pipeline.exactly_once.broker_thread import BrokerThread

OWN = {"retention.ms": "864000000", "min.insync.replicas": "1"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokerThread, BrokerThread]]:
    """Topics `set` and `bare` in the source, and their copies without settings in the target."""
    with BrokerThread(tmp_path / "source") as source, BrokerThread(tmp_path / "target") as target:
        create(source.address, [NewTopic("set", 1, 1, config=OWN), NewTopic("bare", 1, 1)])
        create(target.address, [NewTopic("w.set", 1, 1), NewTopic("w.bare", 1, 1)])
        yield source, target


def create(address: str, topics: list[NewTopic]) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics(topics).values():
        made.result()


def sync_between(brokers: tuple[BrokerThread, BrokerThread]) -> SettingsSync:
    source, target = brokers
    return SettingsSync(
        source=source.address,
        source_security=NO_SECURITY,
        target=target.address,
        target_security=NO_SECURITY,
        prefix="w.",
    )


def test_what_differs_is_set_in_the_target(brokers: tuple[BrokerThread, BrokerThread]) -> None:
    """Only what belongs to the topic, and not to one cluster."""
    sync = sync_between(brokers)
    assert sync.sync(["set", "bare"]) == {"w.set": {"retention.ms": "864000000"}}
    assert sync.sync(["set", "bare"]) == {}
    admin = AdminClient({"bootstrap.servers": brokers[1].address})
    resource = ConfigResource(ResourceType.TOPIC, "w.set")
    (found,) = admin.describe_configs([resource]).values()
    assert found.result()["retention.ms"].value == "864000000"


def test_topics_without_settings_ask_nothing_of_the_target(
    brokers: tuple[BrokerThread, BrokerThread],
) -> None:
    """They are most topics of most clusters."""
    sync = sync_between(brokers)
    assert sync.sync(["bare"]) == {}
    assert brokers[1].running.broker.metrics.requests["describe_configs"] == 0
