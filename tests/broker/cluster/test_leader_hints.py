"""The leader that a broker names with NOT_LEADER_OR_FOLLOWER, and its address for the client (KIP-951)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.cluster.own_listeners import AdvertisedChange
from echoless.broker.config.advertised import parse_networks
from echoless.broker.config.listener_names import PLAINTEXT
from echoless.broker.config.values import Address
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.records.repeated_fetch import ROWS_MIN
from tests.fakes.memory_node_tree import turns
from tests.support.in_process import Running
from tests.support.in_process_cluster import in_process_cluster
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection
from tests.support.raw_produce import PRODUCE, PartitionData, encode_produce
from tests.support.session_client import ask

NOT_LEADER = 6
PARTITIONS = ROWS_MIN
NEAR, FAR = Address("near", 1), Address("far", 2)
NO_SESSION, NEW_SESSION = (0, -1), (0, 0)


@pytest.fixture
async def follower(tmp_path: Path) -> AsyncIterator[Running]:
    """Broker 2, which follows broker 1 in every partition of `t`; the leader has an address for each of two networks."""
    async with in_process_cluster(tmp_path, 2, broker_rack="r1") as (leader, follower):
        places = dict.fromkeys(range(PARTITIONS), (1, 2))
        await leader.broker.services.topics.create(NewTopic(name="t", assignment=places))
        change = AdvertisedChange(NEAR, parse_networks({"127.0.0.2": str(FAR)}))
        await leader.broker.listeners.change(PLAINTEXT, change)
        endpoints = leader.broker.listeners.endpoints()
        async with asyncio.timeout(30):
            while not _knows(follower, endpoints):
                await turns(1)
        yield follower


def _knows(follower: Running, endpoints: Any) -> bool:
    """Whether the leader's addresses, and all its leaderships, have arrived."""
    partitions = follower.broker.partitions
    led = [partitions["t", one] for one in range(PARTITIONS) if ("t", one) in partitions]
    return (
        follower.broker.membership.brokers[1].endpoints == endpoints
        and len(led) == PARTITIONS
        and all(one.leader_id == 1 for one in led)
    )


async def produced(connection: RawConnection, version: int) -> Any:
    """The answer to a batch for each of two partitions."""
    batch = plain_batch([b"v"], producer_id=-1, producer_epoch=-1, base_sequence=-1).encode()
    rows = [PartitionData("t", index, batch) for index in range(2)]
    connection.send(PRODUCE, version, encode_produce(version, 1, rows), flexible=True)
    return await connection.receive_response("produce", version)


@pytest.mark.parametrize(("source", "address"), [("127.0.0.1", NEAR), ("127.0.0.2", FAR)])
async def test_a_produce_answer_has_the_leaders_address(
    follower: Running, source: str, address: Address
) -> None:
    """Named by every row, its address for the client's network once; before v10 by none."""
    connection = await RawConnection.open(follower.kafka_address, source=source)
    answer = await produced(connection, 12)
    rows = answer.responses[0].partition_responses
    assert [(row.error_code, row.current_leader.leader_id) for row in rows] == [(NOT_LEADER, 1)] * 2
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (1, *address, "r1")
    before = await produced(connection, 9)
    assert [row.error_code for row in before.responses[0].partition_responses] == [NOT_LEADER] * 2
    await connection.close()


@pytest.mark.parametrize("session", [NO_SESSION, NEW_SESSION])
@pytest.mark.parametrize("count", [1, 2, PARTITIONS])
async def test_a_fetch_answer_has_the_leaders_address(
    follower: Running, session: tuple[int, int], count: int
) -> None:
    """With a session, without, and for so many partitions that the connection keeps their rows; again, too."""
    connection = await RawConnection.open(follower.kafka_address)
    topic_id = follower.broker.registry.topics["t"].topic_id
    rows = {topic_id: [(index, 0) for index in range(count)]}
    for _ in range(2):
        answer = await ask(connection, session, rows, version=17)
        found = answer.responses[0].partitions
        assert [(row.error_code, row.current_leader.leader_id) for row in found] == (
            [(NOT_LEADER, 1)] * count
        )
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (1, *NEAR, "r1")
    before = await ask(connection, session, rows, version=15)
    assert [row.error_code for row in before.responses[0].partitions] == [NOT_LEADER] * count
    await connection.close()


async def test_a_leader_whose_address_is_not_known_is_named_alone(follower: Running) -> None:
    """A client may know it; a broker that is gone has none."""
    partition = follower.broker.partitions["t", 0]
    connection = await RawConnection.open(follower.kafka_address)
    cluster: Any = follower.broker.membership
    cluster._view.brokers_for_clients = {2: cluster.brokers[2]}
    answer = await produced(connection, 12)
    hint = answer.responses[0].partition_responses[0].current_leader
    assert (hint.leader_id, hint.leader_epoch) == (1, partition.leader_epoch)
    assert answer.node_endpoints == ()
    await connection.close()
