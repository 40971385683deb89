"""The level of `echoless.version`: a cluster stores no more than its oldest broker reads."""

from __future__ import annotations

import pytest

from echoless.broker.config.feature_levels import FEATURE, LEVEL_MAX, SUPPORTED
from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.config.names import FeatureUpgrades
from echoless.broker.metadata.features import FEATURES, decode_level, encode_level
from echoless.broker.metadata.node_data import NodeDataError, broker_path
from echoless.broker.metadata.registration import BrokerInfo, Endpoint, encode_broker
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.one_member import Member
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns

OLD, NEW = 0, LEVEL_MAX


async def join(server: MemoryTree, broker_id: int, level: int) -> MemoryNodeTree:
    """The session of a broker that supports a level; the releases before 0.3.0 announce none."""
    tree = server.connect()
    info = BrokerInfo(
        broker_id=broker_id,
        endpoints={"PLAINTEXT": Endpoint(host="b", port=1)},
        started_ms=0,
        features=SUPPORTED if level else {},
    )
    await tree.create(broker_path(broker_id), encode_broker(info), ephemeral=True)
    return tree


async def upgraded(
    server: MemoryTree,
    disk: MemoryFileSystem,
    *,
    internal: bool = False,
    **settings: FeatureUpgrades,
) -> Member:
    """A new broker 1 in a cluster of an older release, whose broker 2 holds a replica of `orders`."""
    first = Member(server, disk)
    await first.start()
    old = await join(server, 2, OLD)
    await first.until(lambda: 2 in first.broker.membership.brokers)
    await first.broker.registry.create_topic(NewTopic(name="orders", assignment={0: (1, 2)}))
    if internal:
        await first.broker.groups.topic.until_created()
    await first.broker.stop()
    await old.close()
    await server.connect().delete(FEATURES)
    second = Member(server, disk, **settings)
    await second.start()
    return second


async def test_a_new_cluster_is_at_the_newest_level() -> None:
    """Nothing in it is of an older release, so nothing has to be raised."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    assert member.broker.features.level == LEVEL_MAX
    assert {row.name: row.finalized for row in member.broker.features.rows()} == {
        FEATURE: LEVEL_MAX,
        "group.version": 1,
        "transaction.version": 2,
    }
    await member.broker.stop()


async def test_nothing_is_stored_that_an_older_broker_cannot_read() -> None:
    """No internal topic and no setting that 0.1.0 does not know, by any request; the rest goes on."""
    server = MemoryTree()
    member = await upgraded(server, MemoryFileSystem())
    broker = member.broker
    assert broker.features.level == OLD
    assert {row.name: row.finalized for row in broker.features.rows()} == {
        FEATURE: OLD,
        "group.version": 0,
        "transaction.version": 0,
    }
    with pytest.raises(KafkaError, match="older ones end when they meet it") as refused:
        await broker.groups.topic.until_created()
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for config in ({"cleanup.policy": "compact"}, {"compression.type": "gzip"}, {"flush.ms": "5"}):
        with pytest.raises(KafkaError, match="cannot be set yet") as refused:
            await broker.services.topics.create(NewTopic(name="new", config=config))
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    plain = {"cleanup.policy": "delete", "retention.ms": "5", "compression.type": "producer"}
    await broker.services.topics.create(NewTopic(name="new", config=plain))
    assert CONSUMER_OFFSETS not in broker.registry.topics
    await broker.stop()


async def test_where_an_internal_topic_is_no_broker_is_too_old_for_one() -> None:
    """A cluster of 0.2.0 has compacted topics; it goes on making them while it is upgraded."""
    member = await upgraded(MemoryTree(), MemoryFileSystem(), internal=True)
    assert member.broker.features.level == OLD
    await member.broker.services.topics.create(
        NewTopic(name="new", config={"cleanup.policy": "compact"})
    )
    await member.broker.stop()


async def test_the_level_rises_when_the_last_broker_is_new() -> None:
    """A broker that is away and holds a replica may come back as it was, so it is waited for."""
    server = MemoryTree()
    member = await upgraded(server, MemoryFileSystem())
    features = member.broker.features
    old = await join(server, 2, OLD)
    await member.until(lambda: 2 in member.broker.membership.brokers)
    await turns(200)
    assert features.level == OLD
    await old.close()
    await member.until(lambda: 2 not in member.broker.membership.brokers)
    await turns(200)
    assert features.level == OLD
    await join(server, 2, NEW)
    await member.until(lambda: features.level == NEW)
    assert decode_level(server.nodes.read(FEATURES).data) == NEW
    await member.broker.groups.topic.until_created()
    await member.broker.stop()


async def test_a_level_that_is_raised_by_hand_waits_for_that() -> None:
    """All brokers are new, and going back is still possible."""
    server = MemoryTree()
    member = await upgraded(server, MemoryFileSystem(), feature_upgrades=FeatureUpgrades.MANUAL)
    await join(server, 2, NEW)
    await member.until(lambda: 2 in member.broker.membership.brokers)
    await turns(200)
    assert member.broker.features.level == OLD
    await member.broker.features.raise_to(NEW)
    assert member.broker.features.level == NEW
    await member.broker.stop()


async def test_a_broker_is_too_old_for_a_level_that_a_newer_one_has_raised() -> None:
    """It says which version it takes, before it changes anything."""
    server, disk = MemoryTree(), MemoryFileSystem()
    first = Member(server, disk)
    await first.start()
    await first.broker.stop()
    tree = server.connect()
    await tree.write(FEATURES, encode_level(LEVEL_MAX + 1), (await tree.read(FEATURES)).version)
    with pytest.raises(CoordinationError, match=r"raised by a newer version.*supports at most"):
        await Member(server, disk).start()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"features":{"echoless.version":"x"}}'])
def test_a_level_that_cannot_be_read_is_named(data: bytes) -> None:
    """Taking it for level 0 would be wrong, and so would the newest."""
    with pytest.raises(NodeDataError, match=r"/feature .*newer version"):
        decode_level(data)


def test_kafkas_own_features_are_ignored() -> None:
    """Apache Kafka keeps its own in the same node."""
    assert decode_level(b'{"version":2,"status":1,"features":{"metadata.version":7}}') == OLD
    assert encode_level(1) == b'{"version":2,"status":1,"features":{"echoless.version":1}}'
