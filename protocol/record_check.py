"""Opens a produced batch and checks that its records are whole: what Kafka does to every batch.

A batch with a good CRC can still hold nonsense when its producer is broken; stored, it would stop
every consumer of the partition at that offset. Any fault is 87 INVALID_RECORD, as in Kafka, which
answers -1 to data that does not decompress. Two differences: offset deltas must be 0, 1, 2 ...
(Kafka rewrites a compressed batch and stores an uncompressed one as it is), and what a batch may
decompress to is bounded.

Written for speed, since it costs time per record: numbers of one byte, nearly all of them, are read
in place, and others by `read_varint`. Called for client batches that passed `batch_validation`.
"""

from __future__ import annotations

from protocol.compression import DECOMPRESSED_BYTES_MAX, decompress
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.record_batch import HEADER_SIZE, BatchHeader, Buffer
from protocol.varint import VARLONG_BITS, read_varint


def check_records(
    batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> None:
    """Checks number, framing and fields of all records of one whole batch.

    `bytes_max` bounds what compressed records may grow to. Raises `KafkaError` (INVALID_RECORD).
    """
    try:
        data = decompress(header.codec_id, memoryview(batch)[HEADER_SIZE:], bytes_max)
        _check_each(data, header.record_count)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _check_each(data: bytes, record_count: int) -> None:
    size = len(data)
    position = 0
    for index in range(record_count):
        length, start = read_varint(data, position)
        position = start + length
        if length <= 0 or position > size:
            raise DecodeError(
                f"record {index} of {record_count} claims {length} bytes, {size - start} are left"
            )
        end = _skip_fields(data, start, index)
        if end != position:
            raise DecodeError(
                f"record {index} claims {length} bytes, its fields take {end - start}"
            )
    if position != size:
        raise DecodeError(f"{size - position} bytes are left behind {record_count} records")


def _skip_fields(data: bytes, start: int, index: int) -> int:
    """The position behind the fields of the record whose attributes stand at `start`.

    May lie behind the record's end, even behind the data: the caller compares.
    """
    _, position = read_varint(data, start + 1, VARLONG_BITS)
    offset_delta, position = read_varint(data, position)
    if offset_delta != index:
        raise DecodeError(f"record {index} has offset delta {offset_delta}")
    for _ in ("key", "value"):
        length, position = read_varint(data, position)
        if length > 0:
            position += length
    header_count, position = read_varint(data, position)
    if header_count < 0:
        raise DecodeError(f"record {index} claims {header_count} headers")
    for _ in range(header_count):
        position = _skip_header(data, position, index)
    return position


def _skip_header(data: bytes, position: int, index: int) -> int:
    key_length, position = read_varint(data, position)
    if key_length < 0:
        raise DecodeError(f"a header of record {index} has no key")
    value_length, position = read_varint(data, position + key_length)
    return position + max(value_length, 0)
