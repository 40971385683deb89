"""Registration: one session per broker id; and the cluster's id."""

from __future__ import annotations

import uuid

import pytest

from broker.coordination.cluster_id import read_or_create_cluster_id
from broker.coordination.node_data import CLUSTER_ID, NodeDataError, broker_path, encode_uuid
from broker.coordination.node_tree import ConnectionLostError, NodeTree, ensure_paths
from broker.coordination.registration import (
    BrokerIdInUseError,
    BrokerInfo,
    Endpoint,
    encode_broker,
    register_broker,
)
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
def other(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


def info(broker_id: int = 1, host: str = "h", rack: str | None = None) -> BrokerInfo:
    endpoints = {"PLAINTEXT": Endpoint(host=host, port=1)}
    return BrokerInfo(broker_id=broker_id, endpoints=endpoints, started_ms=0, rack=rack)


async def test_a_broker_is_there_while_its_session_lives(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """The node is ephemeral and holds the broker's data."""
    await register_broker(tree, info())
    node = await other.read(broker_path(1))
    assert (node.data, node.owner) == (encode_broker(info()), tree.session_id)
    tree.expire_session()
    assert await other.read_many([broker_path(1)]) == [None]


async def test_a_broker_id_that_is_alive_is_refused(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """The second one is told who holds the id, and other ids are free."""
    await register_broker(tree, info(host="first"))
    with pytest.raises(BrokerIdInUseError, match=r"broker id 1 .*PLAINTEXT://first:1"):
        await register_broker(other, info(host="second"))
    await register_broker(other, info(broker_id=2))


async def test_a_broker_may_register_twice_in_one_session(tree: MemoryNodeTree) -> None:
    """It meets its own node, not a rival's."""
    await register_broker(tree, info())
    await register_broker(tree, info())


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_resolved_by_reading(tree: MemoryNodeTree, applied: bool) -> None:
    """If the node is there and ours, the broker is registered; else the loss is told."""
    await ensure_paths(tree, ["/brokers/ids"])
    tree.lose_next_reply(applied=applied)
    if applied:
        await register_broker(tree, info())
    else:
        with pytest.raises(ConnectionLostError):
            await register_broker(tree, info())


def test_ipv6_addresses_stand_in_brackets() -> None:
    """So that the port can be told from the address; the host alone has none."""
    data = encode_broker(info(host="::1"))
    assert b'"endpoints":["PLAINTEXT://[::1]:1"]' in data
    assert b'"host":"::1"' in data


def test_without_a_rack_the_field_is_missing() -> None:
    """As Kafka writes it."""
    assert b"rack" not in encode_broker(info())


async def test_the_cluster_id_is_made_once(tree: MemoryNodeTree, other: MemoryNodeTree) -> None:
    """Every broker, now and later, gets the first one's."""
    first = await read_or_create_cluster_id(tree, lambda: uuid.UUID(int=7))
    assert first == "AAAAAAAAAAAAAAAAAAAABw"
    assert await read_or_create_cluster_id(other) == first


async def test_of_two_first_brokers_one_makes_the_id(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """A lost race is answered with the winner's id."""
    await ensure_paths(tree, ["/cluster"])
    winner = []

    async def rival() -> None:
        winner.append(await read_or_create_cluster_id(other))

    tree.before_next_change(rival)
    assert [await read_or_create_cluster_id(tree)] == winner


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_about_the_cluster_id(tree: MemoryNodeTree, applied: bool) -> None:
    """An id that landed is ours; otherwise the start fails and can be tried again."""
    await read_or_create_cluster_id(tree)
    await tree.delete(CLUSTER_ID)
    tree.lose_next_reply(applied=applied)
    if applied:
        expected = encode_uuid(uuid.UUID(int=7))
        assert await read_or_create_cluster_id(tree, lambda: uuid.UUID(int=7)) == expected
    else:
        with pytest.raises(ConnectionLostError):
            await read_or_create_cluster_id(tree)


async def test_a_damaged_cluster_id_is_named(tree: NodeTree) -> None:
    """It is not replaced: the data directories carry the old one."""
    await ensure_paths(tree, ["/cluster"])
    await tree.create(CLUSTER_ID, b"junk")
    with pytest.raises(NodeDataError, match=r"/cluster/id .*junk"):
        await read_or_create_cluster_id(tree)
