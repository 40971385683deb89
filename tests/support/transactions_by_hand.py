"""Transactions on a partition of a broker in this process, without a coordinator."""

from __future__ import annotations

from echoless.broker.partitions.partition import Partition
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.record_batch import TRANSACTIONAL_BIT, read_header, seal_batch
from echoless.protocol.records import Record, build_batch
from echoless.storage.appended import Appended

NOW_MS = 1_000_000
"""The data directory's clock."""
TIMESTAMP_MS = 4_000_000_000_000
"""The time of records and markers, which is late enough for retention to keep them."""


class HandMadeTransactions:
    """The transactions of one partition's producers."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def write(self, producer_id: int, *values: bytes) -> int:
        """Stores a batch in the producer's transaction, beginning one if necessary; returns its offset."""
        entry = self.partition.log.producers.get(producer_id)
        sequence = 0 if entry is None else entry.last_sequence + 1
        records = [Record(0, TIMESTAMP_MS, None, value) for value in values]
        plain = build_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        header = read_header(plain)
        bits = header.attributes | TRANSACTIONAL_BIT
        batch = seal_batch(header._replace(attributes=bits), plain[61:])
        result = self.partition.append(batch, read_header(batch), NOW_MS)
        assert isinstance(result, Appended), result
        return result.base_offset

    def end(
        self,
        producer_id: int,
        kind: MarkerType,
        *,
        coordinator_epoch: int = 0,
        timestamp_ms: int = TIMESTAMP_MS,
    ) -> int:
        """Stores the marker; returns its offset."""
        last = self.partition.log.producers.last_marker(producer_id)
        number = 0 if last is None else last.number + 1
        marker = EndMarker(kind, coordinator_epoch, number)
        batch = build_marker(marker, producer_id, 0, timestamp_ms)
        result = self.partition.append_for_coordinator(batch, read_header(batch), NOW_MS)
        assert isinstance(result, Appended), result
        return result.base_offset
