"""Control batches: the marker that ends a transaction on one partition, in Kafka's bytes.

A control batch is a record batch with the control bit and the producer id and epoch of the transaction. Its one
record is no client's:

    key    i16 version (0) | i16 type: 0 ABORT, 1 COMMIT
    value  i16 version (0) | i32 epoch of the coordinator that sent the marker | i64 number of the transaction

The number is Echoless's own: of two transactions of a producer the later one has the higher number, so that a late copy of the
first one's marker cannot end the second. Kafka's readers ignore what follows the fields that they know. Markers of Kafka's
brokers and tools have none.

As in Kafka 3.9.1 (`ControlRecordType`, `EndTransactionMarker`):

* a later version is read as version 0, and bytes that follow its fields are ignored;
* a negative version, or fewer bytes than version 0 has, is corrupt;
* only the first record counts;
* a batch without records is what compaction leaves of a marker whose transaction is gone: it ends nothing;
* the batch is not compressed (Kafka's code would decompress one; nothing writes it);
* other types (those of Kafka's metadata log, and unknown ones) end nothing. (Kafka cannot load a
  log in which such a batch carries a producer id.)

Knows nothing of producer state and of files.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
    seal_batch,
)
from echoless.protocol.sequence import NO_SEQUENCE
from echoless.protocol.varint import VARLONG_BITS, read_varint

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_NUMBER: Final = struct.Struct(">q")
_AROUND: Final = bytes.fromhex("2000000008 00000000 0c 000000000000 00")
"""The record of a marker with empty fields: 16 bytes after the length; a key of 4, a value of 6, no headers."""
_AROUND_NUMBERED: Final = bytes.fromhex("3000000008 00000000 1c 000000000000 0000000000000000 00")
"""The same with a number: 24 bytes after the length; a value of 14."""
_NUMBER_POSITION: Final = 16
_KEY_POSITION: Final = 5
_VALUE_POSITION: Final = 10
_VERSION: Final = 0
NO_NUMBER: Final = -1


class MarkerType(enum.IntEnum):
    """The control records that end a transaction; the number is the type in the key."""

    ABORT = 0
    COMMIT = 1


class EndMarker(NamedTuple):
    """The end of a transaction on one partition."""

    type: MarkerType
    coordinator_epoch: int
    number: int = NO_NUMBER
    """The number of the transaction among those of its producer, >= 0; `NO_NUMBER` in markers of Kafka."""


def build_marker(
    marker: EndMarker,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch of one marker; the leader stamps offset and leader epoch as for any batch.

    78 bytes, as Kafka's; with a number 86.
    """
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
    is_numbered = marker.number != NO_NUMBER
    record = bytearray(_AROUND_NUMBERED if is_numbered else _AROUND)
    _KEY.pack_into(record, _KEY_POSITION, _VERSION, marker.type)
    _VALUE.pack_into(record, _VALUE_POSITION, _VERSION, marker.coordinator_epoch)
    if is_numbered:
        _NUMBER.pack_into(record, _NUMBER_POSITION, marker.number)
    return seal_batch(header, record)


def read_marker(batch: Buffer) -> EndMarker | None:
    """The marker in a whole control batch; None if the batch ends no transaction.

    The CRC is not checked. Raises `DecodeError` for a record that cannot be a control record.
    """
    header = read_header(batch)
    if header.size != len(batch):
        raise DecodeError(f"the batch claims {header.size} bytes, there are {len(batch)}")
    if not header.record_count:
        return None
    if header.codec_id:
        raise DecodeError(f"a control batch is compressed, by codec {header.codec_id}")
    key, value = _first_record(batch)
    type_id = _read(_KEY, key, "key of a control record")
    if type_id not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    coordinator_epoch = _read(_VALUE, value, "value of a transaction marker")
    return EndMarker(MarkerType(type_id), coordinator_epoch, _read_number(value))


def _first_record(batch: Buffer) -> tuple[Buffer, Buffer]:
    """Key and value, empty if null. Not `protocol/records.py`, which a start has no other use for."""
    length, start = read_varint(batch, HEADER_SIZE)
    end = start + length
    if length < 0 or end > len(batch):
        raise DecodeError(f"the record of a control batch claims {length} bytes")
    body = memoryview(batch)[:end]
    position = read_varint(body, start + 1, VARLONG_BITS)[1]
    position = read_varint(body, position)[1]
    key, position = _read_bytes(body, position)
    return key, _read_bytes(body, position)[0]


def _read_bytes(body: memoryview, position: int) -> tuple[memoryview, int]:
    length, position = read_varint(body, position)
    end = position + max(length, 0)
    if end > len(body):
        raise DecodeError(f"a field of a control record claims {length} bytes")
    return body[position:end], end


def _read_number(value: Buffer) -> int:
    """The number of the transaction; other bytes in its place are those of a later version of Kafka's."""
    if len(value) != _VALUE.size + _NUMBER.size:
        return NO_NUMBER
    (number,) = _NUMBER.unpack_from(value, _VALUE.size)
    return max(int(number), NO_NUMBER)


def _read(fields: struct.Struct, data: Buffer, name: str) -> int:
    """The field after the version."""
    if len(data) < fields.size:
        raise DecodeError(f"the {name} takes at least {fields.size} bytes, it has {len(data)}")
    version, field = fields.unpack_from(data)
    if version < 0:
        raise DecodeError(f"the {name} has version {version}")
    return int(field)
