"""A setting of a topic that a broker cannot read: the topic is followed and not led, and nothing ends."""

from __future__ import annotations

import logging

import pytest

from echoless.broker.metadata.node_data import NO_LEADER, encode_config, topic_config_path
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.one_member import Member
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.fakes.memory_node_tree import MemoryTree

UNREADABLE = [
    {"retention.by.moon": "full", "retention.ms": "1000"},
    {"cleanup.policy": "shred"},
    {"cleanup.policy": "delete", "compression.type": "brotli-9"},
    {"segment.bytes": "many"},
]
"""A name, a value, a value of a known list, and a value of another kind."""


async def store(server: MemoryTree, config: dict[str, str]) -> None:
    """Stores the settings of `orders` as a broker of another version would."""
    tree = server.connect()
    path = topic_config_path("orders")
    await tree.write(path, encode_config(config), (await tree.read(path)).version)


async def member_with_orders(server: MemoryTree, disk: MemoryFileSystem) -> Member:
    member = Member(server, disk)
    await member.start()
    if "orders" not in member.broker.registry.topics:
        await member.broker.services.topics.create(NewTopic(name="orders"))
        await member.led("orders")
    return member


@pytest.mark.parametrize("config", UNREADABLE)
async def test_a_topic_is_not_led_while_a_setting_cannot_be_read(
    config: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused with an error that names the setting, kept whole on disk, and led again afterwards."""
    server = MemoryTree()
    member = await member_with_orders(server, MemoryFileSystem())
    partition = member.broker.services.partitions.find("orders", 0)
    epoch = partition.leader_epoch
    with caplog.at_level(logging.ERROR):
        await store(server, config)
        await member.until(lambda: not partition.is_leader)
    assert "a setting that this broker cannot read, written by a newer version" in caplog.text
    assert list(member.broker.unserved_topics) == ["orders"]
    with pytest.raises(KafkaError, match="cannot read a setting") as refused:
        partition.check_leader()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.log.config.retention_ms, partition.log.config.is_compacted) == (-1, False)
    topics = member.broker.registry.topics
    await member.until(lambda: topics["orders"].states[0].leader == NO_LEADER)
    assert topics["orders"].states[0].isr == (1,)
    await store(server, {})
    await member.until(lambda: partition.is_leader)
    assert partition.leader_epoch > epoch
    assert not member.broker.unserved_topics
    await member.broker.stop()


@pytest.mark.parametrize("config", UNREADABLE)
async def test_a_broker_starts_although_it_cannot_read_a_setting(config: dict[str, str]) -> None:
    """One unknown word in the tree is no reason for an outage of everything else."""
    server, disk = MemoryTree(), MemoryFileSystem()
    first = await member_with_orders(server, disk)
    await first.broker.stop()
    await store(server, config)
    second = await member_with_orders(server, disk)
    await second.broker.services.topics.create(NewTopic(name="others"))
    await second.led("others")
    partition = second.broker.services.partitions.find("orders", 0)
    assert not partition.is_leader
    await store(server, {})
    await second.until(lambda: partition.is_leader)
    await second.broker.stop()


async def test_a_topic_created_with_an_unknown_setting_is_held_and_not_led() -> None:
    """As when a newer broker creates an internal topic: every broker with a replica opens it."""
    server = MemoryTree()
    member = await member_with_orders(server, MemoryFileSystem())
    await member.broker.registry.create_topic(
        NewTopic(name="new", config={"cleanup.policy": "shred"})
    )
    held = member.broker.partitions
    await member.until(lambda: ("new", 0) in held)
    assert not held["new", 0].is_leader
    assert list(member.broker.unserved_topics) == ["new"]
    await member.broker.services.topics.delete("new")
    assert not member.broker.unserved_topics
    await member.broker.stop()
