"""The records inside a batch: reading them, and building a batch from them.

A broker's hot path never comes here: batches travel whole, as bytes. The native port, the command
line and the tests do. Pure Python, because the alternative, aiokafka's C extension, costs 40 ms and
17 MB to import, lets hostile lengths past its bounds checks and cannot begin a batch with timestamp
-1; see `docs/decisions/records.md`.

One record (`docs/formats/record-batch.md`; numbers are zigzag varints):
    length | attributes i8 | timestamp_delta | offset_delta | key length, key | value length, value |
    header count | per header: key length, key, value length, value           (length -1: null)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from echoless.protocol.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import (
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    read_header,
    seal_batch,
)
from echoless.protocol.sequence import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from echoless.protocol.varint import VARLONG_BITS, read_varint, write_varint

Headers = Sequence[tuple[str, bytes | None]]
"""The headers of a record, in their order; a name may occur more than once."""


class Record(NamedTuple):
    """One record. `offset` is its offset in the log; `timestamp` is in ms, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The records of one whole batch, header included, with their offsets and timestamps.

    `bytes_max` limits the decompressed size of the records. The CRC is not checked. Raises
    `DecodeError` if the bytes do not match the header.
    """
    return list(iterate_records(batch, bytes_max))


def iterate_records(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The same as `read_records`, but lazily: a record that is not taken is not read."""
    header = read_header(batch)
    yield from _read_each(_open(batch, header, bytes_max), header)


def first_record_since(batch: Buffer, timestamp_ms: int, offset: int) -> tuple[int, int] | None:
    """`(timestamp, offset)` of the first record from `offset` on not older than `timestamp_ms`.

    Looks at these two fields alone, in a fifth of the time that reading takes. Raises
    `DecodeError`.
    """
    header = read_header(batch)
    if header.is_log_append_time:
        return header.max_timestamp, max(header.base_offset, offset)
    data = _open(batch, header, DECOMPRESSED_BYTES_MAX)
    end = 0
    for _ in range(header.record_count):
        length, start = read_varint(data, end)
        if length < RECORD_BYTES_MIN - 1:
            raise DecodeError(f"a record claims {length} bytes")
        timestamp_delta, position = read_varint(data, start + 1, VARLONG_BITS)
        timestamp = header.base_timestamp + timestamp_delta
        if timestamp >= timestamp_ms:
            found = header.base_offset + read_varint(data, position)[0]
            if found >= offset:
                return timestamp, found
        end = start + length
    return None


def _open(batch: Buffer, header: BatchHeader, bytes_max: int) -> Buffer:
    if header.size != len(batch):
        raise DecodeError(f"the batch claims {header.size} bytes, there are {len(batch)}")
    data = decompress(header.codec_id, memoryview(batch)[HEADER_SIZE:], bytes_max)
    if header.record_count * RECORD_BYTES_MIN > len(data):
        raise DecodeError(f"{header.record_count} records cannot fit in {len(data)} bytes")
    return data


def _read_each(data: Buffer, header: BatchHeader) -> Iterator[Record]:
    position = 0
    for index in range(header.record_count):
        length, start = read_varint(data, position)
        position = start + length
        if length < 0 or position > len(data):
            raise DecodeError(
                f"record {index} claims {length} bytes, {len(data) - start} are left for it"
            )
        yield _read_record(bytes(data[start:position]), header)
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes follow {header.record_count} records")


def _read_record(body: bytes, header: BatchHeader) -> Record:
    timestamp_delta, position = read_varint(body, 1, VARLONG_BITS)
    offset_delta, position = read_varint(body, position)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    headers, position = _read_headers(body, position)
    if position != len(body):
        raise DecodeError(f"{len(body) - position} bytes follow the fields of a record")
    timestamp = (
        header.max_timestamp
        if header.is_log_append_time
        else header.base_timestamp + timestamp_delta
    )
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(body, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(body):
        raise DecodeError(f"a field claims {length} bytes, {len(body) - position} are left")
    return body[position:end], end


def _read_headers(body: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(body, position)
    if not 0 <= count <= len(body) - position:
        raise DecodeError(f"a record claims {count} headers in {len(body) - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(body, position)
        if key is None:
            raise DecodeError("a header has no key")
        value, position = _read_bytes(body, position)
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), position


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    is_transactional: bool = False,
) -> bytes:
    """One batch of magic 2 that holds `records` from `base_offset` on.

    The records' own offsets are ignored. The leader epoch is -1, as a client sends it. Raises
    `ValueError` without records: only compaction makes empty batches.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    timestamps = [record.timestamp for record in records]
    body = encode_records(records)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL_BIT if is_transactional else 0),
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal_batch(header, compress(codec, body))


def encode_records(records: Sequence[Record]) -> bytearray:
    """The bytes of at least one record as a batch holds them, without compression."""
    body, base_timestamp = bytearray(), records[0].timestamp
    for offset_delta, record in enumerate(records):
        _write_record(body, record, record.timestamp - base_timestamp, offset_delta)
    return body


def _write_record(
    target: bytearray, record: Record, timestamp_delta: int, offset_delta: int
) -> None:
    body = bytearray(1)  # no attribute bit of a record is defined yet
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_bytes(body, key.encode())
        _write_bytes(body, value)
    write_varint(target, len(body))
    target += body


def _write_bytes(target: bytearray, data: bytes | None) -> None:
    if data is None:
        target.append(1)  # the varint of -1
    else:
        write_varint(target, len(data))
        target += data
