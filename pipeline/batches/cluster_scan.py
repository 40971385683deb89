"""Scan of a running cluster's logs as rows of `batch_columns`, batches as the leaders store them.

It works with every Kafka broker, since Fetch returns whole batches. Only committed batches can be read, and only from
leaders; to compare replicas, their files are needed.

A partition is cut into ranges of offsets; a task reads neighbouring ones until it has enough. A batch belongs to the
range in which it begins. The plan costs one Metadata request and two ListOffsets for each broker, however many
partitions there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from echoless.client.connection import BrokerConnection, ConnectionFailedError
from echoless.client.security import NO_SECURITY, Security
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.batches.batch_columns import header_columns, to_arrow
from echoless.pipeline.batches.batch_walk import walk
from echoless.pipeline.batches.markers import marker_types
from echoless.pipeline.batches.partition_leader import (
    EARLIEST,
    LATEST,
    NoSuchOffsetError,
    PartitionLeader,
    connect,
    read_metadata,
)
from echoless.pipeline.batches.partition_offsets import Address, by_leader, list_offsets

_RANGE_OFFSETS: Final = 1_000_000
_OPENING_OFFSETS: Final = 2_000
"""Cost of finding another partition's leader, in offsets that could be read instead."""


class OffsetRange(NamedTuple):
    """Batches of one partition that begin at the offsets from `start` to `end`, half-open."""

    bootstrap_servers: str
    topic: str
    partition: int
    start: int
    end: int
    is_first: bool
    """Whether a batch that begins below `start` belongs here, too: part of it was deleted."""
    security: Security = NO_SECURITY


def plan_tasks(
    bootstrap_servers: str,
    topic: str | None,
    security: Security = NO_SECURITY,
    *,
    with_internal: bool = False,
) -> list[list[OffsetRange]]:
    """Groups the ranges of `plan_ranges` into tasks. Raises `ConnectionFailedError`, `ClusterReadError`."""
    tasks: list[list[OffsetRange]] = []
    size = _RANGE_OFFSETS
    for one in plan_ranges(bootstrap_servers, topic, security, with_internal=with_internal):
        cost = one.end - one.start + _OPENING_OFFSETS
        if size + cost > _RANGE_OFFSETS:
            tasks.append([])
            size = 0
        tasks[-1].append(one)
        size += cost
    return tasks


def plan_ranges(
    bootstrap_servers: str,
    topic: str | None,
    security: Security = NO_SECURITY,
    *,
    with_internal: bool = False,
) -> list[OffsetRange]:
    """Plans ranges that together cover all logs of the cluster, or those of one topic.

    Internal topics are left out unless `with_internal`, or if one is named. Raises `ConnectionFailedError`,
    `ClusterReadError`.
    """
    with connect(bootstrap_servers, security) as bootstrap:
        metadata = read_metadata(bootstrap, topic)
    with_internal = with_internal or topic is not None
    leaders = {
        TopicPartition(found.name, part.partition_index): part.leader_id
        for found in metadata.topics
        if with_internal or not found.is_internal
        for part in found.partitions
    }
    addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    bounds = _ask_bounds(leaders, addresses, security)
    ranges = []
    for one in sorted(leaders):
        start, end = bounds.get(one) or _ask_alone(bootstrap_servers, one, security)
        ranges += [
            OffsetRange(
                bootstrap_servers,
                *one,
                at,
                min(at + _RANGE_OFFSETS, end),
                at == start,
                security,
            )
            for at in range(start, end, _RANGE_OFFSETS)
        ]
    return ranges


def _ask_bounds(
    leaders: Mapping[TopicPartition, int],
    addresses: Mapping[int, Address],
    security: Security,
) -> dict[TopicPartition, tuple[int, int]]:
    """Asks each broker for the starts and ends of all logs that it leads; what is not answered is missing."""
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    for address, led in by_leader(leaders, addresses).items():
        try:
            with BrokerConnection.open(*address, security=security) as connection:
                starts = list_offsets(connection, led, EARLIEST)
                ends = list_offsets(connection, led, LATEST)
        except ConnectionFailedError:
            continue  # asked alone, with further attempts
        bounds |= {one: (starts[one], ends[one]) for one in starts.keys() & ends.keys()}
    return bounds


def _ask_alone(bootstrap_servers: str, one: TopicPartition, security: Security) -> tuple[int, int]:
    with PartitionLeader(bootstrap_servers, *one, security) as leader:
        return leader.ask_offset(EARLIEST), leader.ask_offset(LATEST)


def _fetch(leader: PartitionLeader, offset: int) -> tuple[int, bytes]:
    """Fetches from `offset`, or from the log's start if that has come to lie above; returns which, too.

    The batch at the start may begin in this range though the start lies behind it. Raises `ClusterReadError`.
    """
    while True:
        try:
            return offset, leader.fetch(offset)
        except NoSuchOffsetError:
            start = leader.ask_offset(EARLIEST)
            if start <= offset:
                raise
            offset = start


def read_range(wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one range; what was deleted meanwhile is left out.

    Raises `ClusterReadError` if its leader stays unreachable.
    """
    offset = wanted.start
    own = {
        "replica": wanted.bootstrap_servers,
        "topic": wanted.topic,
        "partition": wanted.partition,
    }
    partition = wanted.topic, wanted.partition, wanted.security
    with PartitionLeader(wanted.bootstrap_servers, *partition) as leader:
        while offset < wanted.end:
            start, data = _fetch(leader, offset)
            if not data and start >= wanted.end:
                return
            found = walk(data, is_last=True)
            if found.damage is not None or not found.end:
                damage = found.damage or "an answer without a whole batch"
                yield to_arrow(1, {**own, "crc_ok": False, "bytes": len(data), "damage": damage})
                return
            columns = header_columns(found.headers)
            markers = marker_types(data, found.positions, found.headers)
            own_columns = {"crc_ok": found.crc_oks, "marker": markers}
            rows = to_arrow(len(found.positions), {**own, **columns, **own_columns})
            offset = int(columns["last_offset"].max()) + 1
            base_offsets = found.headers["base_offset"]
            is_chosen = base_offsets < wanted.end
            if not wanted.is_first:
                is_chosen &= base_offsets >= wanted.start
            yield rows.filter(pa.array(is_chosen))
