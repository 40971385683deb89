"""The node of requested elections: Kafka's, with room for unclean ones, and no request lost."""

from __future__ import annotations

import pytest

from echoless.broker.controller.election_requests import (
    ask,
    decode_requests,
    encode_requests,
    read_asked,
)
from echoless.broker.controller.elections import ElectionType
from echoless.broker.metadata.node_data import PREFERRED_REPLICA_ELECTION, NodeDataError
from echoless.broker.tree.node_tree import BadVersionError
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


def test_preferred_elections_are_asked_for_as_with_kafka() -> None:
    """Only an unclean one has a field that Kafka does not know."""
    data = encode_requests({("orders", 0): PREFERRED, ("orders", 1): UNCLEAN})
    assert data == (
        b'{"version":1,"partitions":[{"topic":"orders","partition":0},'
        b'{"topic":"orders","partition":1,"election_type":"unclean"}]}'
    )
    assert decode_requests(data) == {("orders", 0): PREFERRED, ("orders", 1): UNCLEAN}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"partitions":[1]}',
        b'{"partitions":[{"topic":"t"}]}',
        b'{"partitions":[{"topic":"t","partition":"x"}]}',
        b'{"partitions":[{"topic":"t","partition":0,"election_type":"fair"}]}',
    ],
)
def test_what_cannot_be_read_is_told(data: bytes) -> None:
    """The error has the node's name and its content."""
    with pytest.raises(NodeDataError, match="preferred_replica_election"):
        decode_requests(data)


def test_an_election_is_held_once_per_partition() -> None:
    """Kafka's node is a set."""
    one = b'{"topic":"t","partition":3}'
    data = b'{"partitions":[%b,%b]}' % (one, one)
    assert decode_requests(data) == {("t", 3): PREFERRED}


async def test_requests_join_those_that_wait(tree: MemoryNodeTree) -> None:
    """The newest word on a partition counts."""
    assert await read_asked(tree) is None
    await ask(tree, {("t", 0): PREFERRED, ("t", 1): PREFERRED})
    await ask(tree, {("t", 1): UNCLEAN})
    asked = await read_asked(tree)
    assert asked is not None
    assert asked.elections == {("t", 0): PREFERRED, ("t", 1): UNCLEAN}
    assert asked.version == 1


async def test_no_request_is_lost_in_a_race(server: MemoryTree, tree: MemoryNodeTree) -> None:
    """Neither against another request nor against the controller, which deletes what it has read."""
    rival = server.connect()
    await ask(tree, {("a", 0): PREFERRED})

    async def ask_too() -> None:
        await ask(rival, {("b", 0): PREFERRED})

    async def delete() -> None:
        await rival.delete(PREFERRED_REPLICA_ELECTION)

    tree.before_next_change(ask_too)
    tree.before_next_change(delete)
    tree.before_next_change(ask_too)
    await ask(tree, {("c", 0): PREFERRED})
    asked = await read_asked(tree)
    assert asked is not None
    assert asked.elections.keys() == {("b", 0), ("c", 0)}


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_asked_again(tree: MemoryNodeTree, *, applied: bool) -> None:
    """Requesting the same election twice does no harm."""
    await ask(tree, {("a", 0): PREFERRED})
    tree.lose_next_reply(applied=applied)
    await ask(tree, {("b", 0): PREFERRED})
    asked = await read_asked(tree)
    assert asked is not None
    assert asked.elections.keys() == {("a", 0), ("b", 0)}


async def test_a_request_gives_up_in_the_end(server: MemoryTree, tree: MemoryNodeTree) -> None:
    """A requester that always loses the race gets an error in the end."""
    rival = server.connect()
    await ask(tree, {("a", 0): PREFERRED})

    async def ask_too() -> None:
        await ask(rival, {("b", 0): PREFERRED})

    for _ in range(20):
        tree.before_next_change(ask_too)
    with pytest.raises(BadVersionError):
        await ask(tree, {("c", 0): PREFERRED})
