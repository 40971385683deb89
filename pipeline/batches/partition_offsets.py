"""Offsets of many partitions, asked of their leaders: one Metadata request, and one ListOffsets for each broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from echoless.client.connection import BrokerConnection, ConnectionFailedError
from echoless.client.security import NO_SECURITY, Security
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.batches.partition_leader import connect

Address = tuple[str, int]


def read_offsets_of(
    bootstrap_servers: str,
    partitions: Collection[TopicPartition],
    which: int,
    security: Security = NO_SECURITY,
) -> dict[TopicPartition, int]:
    """Asks for `EARLIEST` or `LATEST`; partitions without an answer are left out. Raises `ConnectionFailedError`."""
    fields = {
        "topics": [{"name": name, "topic_id": None} for name in {one.topic for one in partitions}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    with connect(bootstrap_servers, security) as bootstrap:
        metadata = bootstrap.request("metadata", fields)
    addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    leaders = {
        TopicPartition(topic.name, part.partition_index): part.leader_id
        for topic in metadata.topics
        for part in topic.partitions
    }
    led = {one: leaders[one] for one in partitions if one in leaders}
    found: dict[TopicPartition, int] = {}
    for address, some in by_leader(led, addresses).items():
        try:
            with BrokerConnection.open(*address, security=security) as connection:
                found |= list_offsets(connection, some, which)
        except ConnectionFailedError:
            continue
    return found


def by_leader(
    leaders: Mapping[TopicPartition, int], addresses: Mapping[int, Address]
) -> dict[Address, list[TopicPartition]]:
    """Groups partitions by the address of their leader; those without one are left out."""
    found: dict[Address, list[TopicPartition]] = {}
    for one, leader in leaders.items():
        if leader in addresses:
            found.setdefault(addresses[leader], []).append(one)
    return found


def list_offsets(
    connection: BrokerConnection, partitions: Iterable[TopicPartition], which: int
) -> dict[TopicPartition, int]:
    """Asks one broker; partitions that it refuses are left out. Raises `ConnectionFailedError`."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, index in partitions:
        part = {"partition_index": index, "current_leader_epoch": -1, "timestamp": which}
        topics.setdefault(name, []).append(part)
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 30_000,
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
    }
    return {
        TopicPartition(found.name, part.partition_index): int(part.offset)
        for found in connection.request("list_offsets", fields).topics
        for part in found.partitions
        if not part.error_code.value
    }
