"""Everything that a running cluster has stored in a partition, record by record."""

from __future__ import annotations

from contextlib import suppress

from echoless.pipeline.batches.partition_leader import (
    EARLIEST,
    LATEST,
    ClusterReadError,
    PartitionLeader,
)
from echoless.pipeline.exactly_once.read_back import split
from echoless.protocol.records import Record, read_records


def stored_records(address: str, topic: str, partition: int) -> list[Record]:
    """The committed records in offset order; offsets may have gaps."""
    records: list[Record] = []
    with PartitionLeader(address, topic, partition) as leader:
        start, end = leader.ask_offset(EARLIEST), leader.ask_offset(LATEST)
        offset = start
        while offset < end:
            for header, batch in split(leader.fetch(offset)):
                records += [one for one in read_records(batch) if one.offset >= start]
                offset = header.last_offset + 1
    return records


def count_stored(address: str, topic: str, partitions: int) -> int:
    """How many records of a topic without gaps there are by now; 0 where it is missing."""
    count = 0
    with suppress(ClusterReadError):
        for partition in range(partitions):
            with PartitionLeader(address, topic, partition) as leader:
                count += leader.ask_offset(LATEST)
    return count
