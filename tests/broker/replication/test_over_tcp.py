"""Three brokers in one process, with real disks and real connections; only the coordinator is a fake."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.admin.exposition import Exposition
from echoless.broker.cluster.peer_clocks import ANSWER_S
from echoless.broker.metadata.topic import NewTopic
from tests.support.in_process import Running
from tests.support.in_process_cluster import in_process_cluster
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch

LARGE = 900_000
"""Bytes of a value: close to `max.message.bytes`, and many times what one read of a socket gets."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[list[Running]]:
    """Brokers 1, 2 and 3."""
    async with in_process_cluster(tmp_path) as brokers:
        yield brokers


async def create(broker: Running, name: str) -> None:
    """A topic of one partition, led by broker 1."""
    await broker.broker.services.topics.create(NewTopic(name=name, assignment={0: (1, 2, 3)}))


async def produce(connection: NativeConnection, sequence: int, size: int) -> dict[str, Any]:
    batch = plain_batch(
        [bytes([sequence]) * size],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        timestamp=2**41,
    )
    return await connection.call("produce", topic="t", partition=0, batch=batch.encode(), acks=-1)


async def test_every_replica_has_what_was_acknowledged(cluster: list[Running]) -> None:
    """Small batches and large ones arrive at both followers, byte for byte, before the answer."""
    await create(cluster[0], "t")
    connection = await NativeConnection.open(cluster[0].native_address)
    for sequence, size in enumerate([10, 100_000, LARGE, 10, LARGE, LARGE, 1]):
        answer = await produce(connection, sequence, size)
        assert (answer["error"]["name"], answer["base_offset"]) == ("NONE", sequence)
    logs = [running.broker.partitions["t", 0].log for running in cluster]
    assert [log.log_end_offset for log in logs] == [7, 7, 7]
    for offset in range(7):
        first, *others = (log.read(offset, 1, 7) for log in logs)
        assert others == [first, first]
    assert (await produce(connection, 6, 1))["duplicate"]
    await connection.close()


async def test_clocks_are_compared(cluster: list[Running]) -> None:
    """The metrics of each broker have its difference to both others: less than the way of a question here."""
    broker = cluster[0].broker
    assert await broker.membership.clock_doubt(broker.clock) is None
    text = (await Exposition(broker).text()).decode()
    found = re.findall(r'^echoless_clock_ahead_seconds{other="(\d)"} (\S+)$', text, re.MULTILINE)
    assert [other for other, _ in found] == ["2", "3"]
    assert all(-ANSWER_S <= float(ahead) <= 0 for _, ahead in found)


async def test_a_new_topic_is_known_to_every_broker(cluster: list[Running]) -> None:
    """A client that asks another broker right after the creation gets the leader."""
    await create(cluster[0], "t")
    for running in cluster:
        connection = await NativeConnection.open(running.native_address)
        (topic,) = (await connection.call("metadata", topics=["t"]))["topics"]
        assert topic["partitions"][0]["leader_id"] == 1
        await connection.close()
