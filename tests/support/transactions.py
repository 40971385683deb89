"""Transactions on a partition of a broker in the test's own process, written without a coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echoless.broker.partitions.partition import Partition
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.append_origin import AppendOrigin
from echoless.storage.appended import Appended

TIMESTAMP_MS: Final = 1_795_000_000_000
COORDINATOR: Final = AppendOrigin.COORDINATOR


def transactional_batch(
    producer_id: int, base_sequence: int, values: Sequence[bytes], *, producer_epoch: int = 0
) -> bytes:
    """A batch of a transaction, as a client sends it."""
    records = [Record(index, TIMESTAMP_MS, None, value) for index, value in enumerate(values)]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )


def write_in_transaction(
    partition: Partition, producer_id: int, base_sequence: int, *values: bytes
) -> int:
    """Appends a batch, which opens a transaction if none is open; returns its offset."""
    batch = transactional_batch(producer_id, base_sequence, values)
    answer = partition.append(batch, read_header(batch), TIMESTAMP_MS)
    assert isinstance(answer, Appended), answer
    return answer.base_offset


def end_transaction(
    partition: Partition,
    producer_id: int,
    kind: MarkerType,
    *,
    coordinator_epoch: int = 0,
    timestamp_ms: int = TIMESTAMP_MS,
) -> int:
    """Appends a marker; returns its offset."""
    marker = EndMarker(kind, coordinator_epoch)
    batch = build_marker(marker, producer_id, 0, timestamp_ms)
    answer = partition.log.append(
        batch, read_header(batch), partition.leader_epoch, timestamp_ms, origin=COORDINATOR
    )
    assert isinstance(answer, Appended), answer
    partition.advance_high_watermark()
    return answer.base_offset
