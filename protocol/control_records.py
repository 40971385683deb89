"""Control batches: the marker that ends a transaction on one partition, in Kafka's bytes.

A control batch is a record batch with the control bit and the producer id and epoch of the transaction. Its one
record is no client's:

    key    i16 version (0) | i16 type: 0 ABORT, 1 COMMIT
    value  i16 version (0) | i32 epoch of the coordinator that sent the marker

As in Kafka (`ControlRecordType`, `EndTransactionMarker`):

* a later version is read as version 0, and bytes that follow its fields are ignored;
* a negative version, or fewer bytes than version 0 has, is corrupt;
* only the first record counts;
* a batch without records is what compaction leaves of a marker whose transaction is gone: it ends nothing;
* other types (those of Kafka's metadata log, and unknown ones) end nothing. There Kafka differs: where such a batch
  carries a producer id, its log cannot be loaded.

Knows nothing of producer state and of files.
"""

from __future__ import annotations

import enum
import struct
from itertools import islice
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import (
    CONTROL_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    seal_batch,
)
from echoless.protocol.records import Record, encode_records, iterate_records
from echoless.protocol.sequence import NO_SEQUENCE

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class MarkerType(enum.IntEnum):
    """The control records that end a transaction; the number is the type in the key."""

    ABORT = 0
    COMMIT = 1


class EndMarker(NamedTuple):
    """The end of a transaction on one partition."""

    type: MarkerType
    coordinator_epoch: int


def build_marker(
    marker: EndMarker,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch of one marker, 78 bytes; the leader stamps offset and leader epoch as for any batch."""
    key = _KEY.pack(_VERSION, marker.type)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return seal_batch(header, encode_records([Record(base_offset, timestamp_ms, key, value)]))


def read_marker(batch: Buffer) -> EndMarker | None:
    """The marker in a whole control batch; None if the batch ends no transaction.

    The CRC is not checked. Raises `DecodeError` for a record that cannot be a control record.
    """
    for record in islice(iterate_records(batch), 1):
        return _marker(record)
    return None


def _marker(record: Record) -> EndMarker | None:
    _, type_id = _read(_KEY, record.key, "key of a control record")
    if type_id not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    _, coordinator_epoch = _read(_VALUE, record.value, "value of a transaction marker")
    return EndMarker(MarkerType(type_id), coordinator_epoch)


def _read(fields: struct.Struct, data: bytes | None, name: str) -> tuple[int, int]:
    """The version and the field after it."""
    size = 0 if data is None else len(data)
    if data is None or size < fields.size:
        raise DecodeError(f"the {name} takes at least {fields.size} bytes, it has {size}")
    version, field = fields.unpack_from(data)
    if version < 0:
        raise DecodeError(f"the {name} has version {version}")
    return version, field
