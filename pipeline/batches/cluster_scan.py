"""Scan of a running cluster's logs as rows of `batch_columns`, batches as the leaders store them.

It works with every Kafka broker, since Fetch returns whole batches. Only committed batches can be read, and only from
leaders; to compare replicas, their files are needed.

A partition is cut into ranges of offsets, one task each. A batch belongs to the range in which it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from echoless.client.security import NO_SECURITY, Security
from echoless.pipeline.batches.batch_columns import header_columns, to_arrow
from echoless.pipeline.batches.batch_walk import walk
from echoless.pipeline.batches.partition_leader import (
    EARLIEST,
    LATEST,
    PartitionLeader,
    connect,
    read_metadata,
)

_RANGE_OFFSETS: Final = 1_000_000


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


def plan_ranges(
    bootstrap_servers: str, topic: str | None, security: Security = NO_SECURITY
) -> list[OffsetRange]:
    """Plans ranges that together cover all logs of the cluster, or those of one topic.

    Raises `ConnectionFailedError`, `ClusterReadError`.
    """
    with connect(bootstrap_servers, security) as bootstrap:
        metadata = read_metadata(bootstrap, topic)
    ranges = []
    for found in metadata.topics:
        for part in sorted(found.partitions, key=lambda part: part.partition_index):
            index = part.partition_index
            with PartitionLeader(bootstrap_servers, found.name, index, security) as leader:
                start, end = leader.ask_offset(EARLIEST), leader.ask_offset(LATEST)
            ranges += [
                OffsetRange(
                    bootstrap_servers,
                    found.name,
                    index,
                    at,
                    min(at + _RANGE_OFFSETS, end),
                    at == start,
                    security,
                )
                for at in range(start, end, _RANGE_OFFSETS)
            ]
    return ranges


def read_range(wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one range. Raises `ClusterReadError` if its leader stays unreachable."""
    offset = wanted.start
    own = {
        "replica": wanted.bootstrap_servers,
        "topic": wanted.topic,
        "partition": wanted.partition,
    }
    partition = wanted.topic, wanted.partition, wanted.security
    with PartitionLeader(wanted.bootstrap_servers, *partition) as leader:
        while offset < wanted.end:
            data = leader.fetch(offset)
            found = walk(data, is_last=True)
            if found.damage is not None or not found.end:
                damage = found.damage or "an answer without a whole batch"
                yield to_arrow(1, {**own, "crc_ok": False, "bytes": len(data), "damage": damage})
                return
            columns = header_columns(found.headers)
            rows = to_arrow(len(found.positions), {**own, **columns, "crc_ok": found.crc_oks})
            offset = int(columns["last_offset"].max()) + 1
            base_offsets = found.headers["base_offset"]
            is_chosen = base_offsets < wanted.end
            if not wanted.is_first:
                is_chosen &= base_offsets >= wanted.start
            yield rows.filter(pa.array(is_chosen))
